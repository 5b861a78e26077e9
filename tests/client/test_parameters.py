import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall_core.types.parameters import from_proto, to_proto, to_protos


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
    assert message.WhichOneof("kind") == field
    assert from_proto(message) == back
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


def test_all_at_once():
    assert {name: from_proto(item) for name, item in to_protos({"n": 1, "axis": -1}).items()} == {"n": 1, "axis": -1}


def test_a_spec_that_is_no_parameter_is_refused_with_its_proper_argument():
    with pytest.raises(shardcall.ParameterTypeError, match=r"'spec' is a spec, P\(None, 'x'\), .* give in_specs="):
        to_proto("spec", shardcall.P(None, "x"))
