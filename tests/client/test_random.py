"""Bounds of random integers are checked where the caller wrote them."""

import numpy as np
import pytest

import shardcall


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("low", "high", "dtype"),
    [(-128, 128, "int8"), (0, np.uint16(256), "uint8"), (-(2**63), 2**63, "int64"), (0, 2**64 - 1, "uint64")],
)
def test_bounds_of_the_whole_type_are_sent(client, server, low, high, dtype):
    sent = client.randint(0, 3, low, high, dtype)
    assert [int(np.asarray(operand)) for operand in sent] == [0, low, high]
