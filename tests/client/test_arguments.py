"""Arguments of calls: operands, specs and parameters."""

import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall import Array, P
from shardcall._src.calls.call_request import CallOptions, prepare
from shardcall_core.types.arguments import bind, caller_name
from shardcall_core.types.parameters import from_proto, to_proto

DIFFERENCE = {"axis": 0, "append": 1.0, "spec": P("x"), "out_spec": P(), "prepend": None}
PRODUCT = {"rhs": "b", "lhs": "a", "rhs_spec": P(None, "y"), "axis_name": "x"}
WIRE = {"in_specs": [P("x"), None], "out_specs": [None]}


# Calls


@rows(
    ("kernel", "operands", "keywords", "specs", "expected"),
    [
        ("diff", ["x"], DIFFERENCE, {}, (("x", None, 1.0), (P("x"),), (P(),), {"axis": 0})),
        ("matmul", [], PRODUCT, {}, (("a", "b"), (None, P(None, "y")), None, {"axis_name": "x"})),
        ("collective_matmul", [], PRODUCT, {}, (("a", "b"), (None, P(None, "y")), None, {"axis_name": "x"})),
        ("diff", ["x", 0.0], {"n": 2}, WIRE, (("x", 0.0), [P("x"), None], [None], {"n": 2})),
        ("scan", ["x", None], {"spec": "text", "prepend": 3}, {}, (("x",), None, None, {"spec": "text", "prepend": 3})),
    ],
)
def test_names_become_operands_and_specs_of_kernels_in_the_table(kernel, operands, keywords, specs, expected):
    bound = bind(kernel, operands, keywords, **specs)
    assert (bound.operands, bound.in_specs, bound.out_specs, bound.parameters) == expected


@rows(
    ("operands", "keywords", "specs", "says"),
    [
        (["x", 0.0], {"prepend": 1.0}, {}, "'prepend' .* by position and by name"),
        (["x"], {"spec": "x"}, {"in_specs": ["x"]}, "spec and in_specs are both given"),
        (["x"], {"out_spec": "x"}, {"out_specs": ["x"]}, "out_spec and out_specs are both given"),
    ],
)
def test_duplicate_arguments_are_refused(operands, keywords, specs, says):
    with pytest.raises(shardcall.InvalidRequestError if specs else shardcall.InvalidOperandError, match=says):
        bind("diff", operands, keywords, **specs)


@rows(
    ("kernel", "field", "name"),
    [
        ("diff", "operand 0", "x"),
        ("diff", "operand 2", "append"),
        ("diff", "operand 3", "operand 3"),
        ("diff", "in_specs[0]", "spec"),
        ("diff", "in_specs[1]", "in_specs[1]"),
        ("diff", "in_specs", "in_specs"),
        ("diff", "axis", "axis"),
        ("matmul", "in_specs[1]", "rhs_spec"),
        ("matmul", "out_specs[0]", "out_spec"),
        ("scan", "operand 0", "operand 0"),
        ("", "", ""),
    ],
)
def test_fields_of_the_wire_have_names_that_callers_know(kernel, field, name):
    assert caller_name(kernel, field) == name


@rows(
    ("kernel", "operands", "keywords", "field"),
    [
        ("diff", [[[1], [1, 2]]], {}, "x"),
        ("diff", [1.0], {"prepend": "text"}, "prepend"),
        ("diff", [1.0], {"spec": ("x", 3)}, "spec"),
        ("matmul", [], {"lhs": 1.0, "rhs": object()}, "rhs"),
        ("matmul", [1.0, 1.0], {"rhs_spec": 3}, "rhs_spec"),
        ("matmul", [1.0, 1.0], {"out_spec": 3}, "out_spec"),
        ("scan", ["text"], {}, "operand 0"),
    ],
)
def test_errors_speak_of_what_the_caller_wrote(kernel, operands, keywords, field):
    with pytest.raises(shardcall.ShardcallError) as caught:
        prepare(kernel, operands, keywords)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field} ")


def test_types_stand_for_arrays_where_no_values_are_needed():
    class ShapeDtypeStruct:
        shape, dtype = (2, 3), np.dtype(np.float32)

    call = prepare("matmul", [ShapeDtypeStruct(), Array((3, 1), "float32")], {})
    assert call.types == (Array((2, 3), "float32"), Array((3, 1), "float32"))
    with pytest.raises(shardcall.InvalidOperandError, match=r"lhs is .* a type without values.*plan or compile"):
        _ = call.values


@rows("arguments", [{"kernel": 3}, {"kernel": "diff", "options": CallOptions(strategy=None)}, {"kernel": "\ud800"}])
def test_names_are_strings_that_travel(arguments):
    with pytest.raises(shardcall.InvalidRequestError):
        prepare(operands=[], keywords={}, **arguments)


@rows(
    ("keyword", "says"),
    [({"keep": True}, "submit always stay on the mesh"), ({"out": np.zeros(2)}, "what the call returns")],
)
def test_keywords_of_other_methods_are_refused_with_advice(keyword, says):
    (name,) = keyword
    with pytest.raises(shardcall.UnknownParameterError, match=f"^{name}= was given to a call of 'add'; .*{says}"):
        prepare("add", [1.0, 2.0], keyword)
    assert prepare("own_kernel", [1.0], {"keep": True}).message.parameters["keep"].bool_value


@rows("length", [1025, 5_000_000])
def test_a_name_that_is_too_long_for_a_kernel_is_refused_as_a_name(length):
    says = rf"^there is no kernel 'k+… \({length} characters\)'"
    with pytest.raises(shardcall.KernelNotFoundError, match=says) as caught:
        prepare("k" * length, [1.0], {})
    assert len(str(caught.value)) < 300
    assert (caught.value.reason, caught.value.field) == ("KERNEL_NOT_FOUND", "kernel")


# Parameters


@rows(
    ("value", "field", "back"),
    [
        (None, None, None),
        (True, "bool_value", True),
        (np.bool_(False), "bool_value", False),
        (-3, "int_value", -3),
        (np.int8(-3), "int_value", -3),
        (2**63 - 1, "int_value", 2**63 - 1),
        (np.array(3), "int_value", 3),
        (0.5, "float_value", 0.5),
        (np.float32(0.5), "float_value", 0.5),
        ("ring", "string_value", "ring"),
        ("", "string_value", ""),
        ([], "int_list", ()),
        ((0, -1), "int_list", (0, -1)),
        (range(3), "int_list", (0, 1, 2)),
        (np.array([1, 2]), "int_list", (1, 2)),
    ],
)
def test_values_are_sent_by_their_type(value, field, back):
    message = to_proto("n", value)
    assert (message.WhichOneof("kind"), from_proto(message)) == (field, back)
    assert type(from_proto(message)) is type(back)


@rows("value", [1j, b"x", {1: 2}, {1, 2}, object(), [1.5], ["a"], np.array([0.5]), int])
def test_other_types_are_refused_with_those_that_are_allowed(value):
    with pytest.raises(shardcall.ParameterTypeError, match=r"parameter 'n' is .*; give None, a bool") as caught:
        to_proto("n", value)
    assert caught.value.field == "n"
    assert isinstance(caught.value, TypeError)


@rows("value", [2**63, -(2**63) - 1, [2**63], [True]])
def test_integers_must_fit(value):
    with pytest.raises(shardcall.InvalidParameterError, match=r"64 bits"):
        to_proto("n", value)


def test_a_spec_that_is_no_parameter_is_refused_with_its_proper_argument():
    with pytest.raises(shardcall.ParameterTypeError, match=r"'spec' is a spec, P\(None, 'x'\), .* give in_specs="):
        to_proto("spec", shardcall.P(None, "x"))
