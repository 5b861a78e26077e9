import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall import Array, Mesh, P
from shardcall._src.calls.call_request import CallOptions, prepare
from shardcall_core.types.arguments import bind, caller_name


def test_names_of_diff_become_operands_and_specs():
    bound = bind("diff", ["x"], {"axis": 0, "append": 1.0, "spec": P("x"), "out_spec": P(), "prepend": None})
    assert bound.operands == ("x", None, 1.0)
    assert bound.in_specs == (P("x"),)
    assert bound.out_specs == (P(),)
    assert bound.parameters == {"axis": 0}


def test_names_of_products_become_operands_and_specs():
    for kernel in ("matmul", "collective_matmul"):
        bound = bind(kernel, [], {"rhs": "b", "lhs": "a", "rhs_spec": P(None, "y"), "axis_name": "x"})
        assert bound.operands == ("a", "b")
        assert bound.in_specs == (None, P(None, "y"))
        assert bound.out_specs is None
        assert bound.parameters == {"axis_name": "x"}


def test_the_form_of_the_wire_passes_unchanged():
    bound = bind("diff", ["x", 0.0], {"n": 2}, in_specs=[P("x"), None], out_specs=[None])
    assert (bound.operands, bound.in_specs, bound.out_specs) == (("x", 0.0), [P("x"), None], [None])


def test_other_kernels_keep_their_keywords_as_parameters():
    bound = bind("scan", ["x", None], {"spec": "text", "prepend": 3})
    assert bound.operands == ("x",)
    assert bound.parameters == {"spec": "text", "prepend": 3}


def test_duplicate_operands_are_refused():
    with pytest.raises(shardcall.InvalidOperandError, match=r"'prepend' .* by position and by name"):
        bind("diff", ["x", 0.0], {"prepend": 1.0})


def test_duplicate_specs_are_refused():
    with pytest.raises(shardcall.InvalidRequestError, match=r"spec and in_specs are both given"):
        bind("diff", ["x"], {"spec": P("x")}, in_specs=[P("x")])
    with pytest.raises(shardcall.InvalidRequestError, match=r"out_spec and out_specs are both given"):
        bind("matmul", ["a", "b"], {"out_spec": P("x")}, out_specs=[P("x")])


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


def test_a_prepared_call_holds_all_but_the_arrays():
    call = prepare("diff", [[1, 2]], {"axis": -1, "append": 0, "spec": P("x")}, CallOptions(Mesh(x=2), strategy="halo"))
    assert call.message.kernel == "diff"
    assert call.message.strategy == "halo"
    assert call.message.parameters["axis"].int_value == -1
    assert [axis.name for axis in call.message.mesh.axes] == ["x"]
    assert len(call.message.in_specs) == 1
    assert call.types == (Array(2, "int64"), None, Array((), "int64"))
    np.testing.assert_array_equal(call.values[0], [1, 2])


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
    with pytest.raises(
        shardcall.KernelNotFoundError, match=rf"^there is no kernel 'k+… \({length} characters\)'"
    ) as caught:
        prepare("k" * length, [1.0], {})
    assert len(str(caught.value)) < 300
    assert (caught.value.reason, caught.value.field) == ("KERNEL_NOT_FOUND", "kernel")
