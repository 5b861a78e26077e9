"""Bounds of random integers are checked where the caller wrote them."""

import numpy as np
import pytest
from rows import rows

import shardcall


@rows(
    ("low", "high", "dtype", "field", "says"),
    [
        (-5, 5, "uint8", "low", "low=-5 and the values are uint8; give a low from 0 to 255, or a wider dtype"),
        (0, 300, np.uint8, "high", "high=300 and the values are uint8; give a high from 0 to 256"),
        (np.int64(200), 300, "int8", "low", "low=200 and the values are int8"),
        (0, np.asarray(2**40), np.int32, "high", "high=1099511627776 and the values are int32"),
        (0, 2**64, "uint64", "high", "from 0 to 18446744073709551615"),
    ],
)
def test_bounds_beyond_the_type_are_refused(client, low, high, dtype, field, says):
    with pytest.raises(shardcall.InvalidOperandError) as raised:
        client.randint(0, 3, low, high, dtype)
    assert raised.value.field == field
    assert says in str(raised.value)


@rows(("low", "high"), [(7, 5), (5, np.int8(5)), (np.array(3), 2)])
def test_bounds_with_nothing_between_them_are_refused_as_numpy_refuses_them(client, low, high):
    with pytest.raises(ValueError, match=f"low={low} and high={high}; give a high above low") as raised:
        client.randint(0, (2, 3), low, high)
    assert isinstance(raised.value, shardcall.InvalidOperandError)
    assert client.randint(0, (2, 0), low, high).arrays


@rows("name", ["uniform", "normal", "randint"])
def test_arguments_of_numpys_generators_are_explained(client, name):
    with pytest.raises(TypeError, match=rf"give the seed and the shape first.*: {name}\(seed, shape, lo"):
        getattr(client, name)(size=3)
    with pytest.raises(AttributeError, match="take a seed"):
        client.random  # noqa: B018


def test_an_interval_may_have_no_length_and_not_less(client):
    assert client.uniform(0, 3, 2.0, 2.0).arrays
    with pytest.raises(ValueError, match=r"low=2.0 and high=1; give a high of at least low"):
        client.uniform(0, 3, 2.0, 1)


@rows(
    ("low", "high", "dtype"),
    [(-128, 128, "int8"), (0, np.uint16(256), "uint8"), (-(2**63), 2**63, "int64"), (0, 2**64 - 1, "uint64")],
)
def test_bounds_of_the_full_range_of_a_type_are_sent(client, server, low, high, dtype):
    assert [int(np.asarray(operand)) for operand in client.randint(0, 3, low, high, dtype)] == [0, low, high]
