import array
import copy

import ml_dtypes
import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall import Array
from shardcall._src.device_arrays.operands import as_operand
from shardcall.v1 import array_pb2
from shardcall_core.types.arrays import as_bytes_view, from_proto, row_major, to_proto


class HasArray:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


class HasDLPack:
    def __init__(self):
        self._array = np.arange(6, dtype=np.float32).reshape(2, 3)

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@rows(
    ("value", "expected"),
    [
        (0.0, np.float64(0)),
        (3, np.int64(3)),
        (True, np.bool_(True)),
        (1j, np.complex128(1j)),
        (np.float32(2), np.float32(2)),
        ([[1, 2], [3, 4]], np.array([[1, 2], [3, 4]])),
        ((1.5, 2), np.array([1.5, 2.0])),
        ([], np.zeros(0)),
        (range(4), np.arange(4)),
        (HasArray(), np.arange(3.0)),
        (HasDLPack(), np.arange(6, dtype=np.float32).reshape(2, 3)),
        (array.array("d", [1, 2]), np.array([1.0, 2.0])),
        (bytearray(b"\x01\x02"), np.array([1, 2], np.uint8)),
        (memoryview(b"\x01\x02"), np.array([1, 2], np.uint8)),
        (np.array([1, 2], ">i4"), np.array([1, 2], np.int32)),
        (np.arange(6.0).reshape(2, 3).T, np.arange(6.0).reshape(2, 3).T),
        (np.arange(10)[::-3], np.arange(10)[::-3]),
        (np.broadcast_to(np.float32(1), (2, 2)), np.ones((2, 2), np.float32)),
        (np.zeros((0, 3)), np.zeros((0, 3))),
        (np.zeros((), ml_dtypes.bfloat16), np.zeros((), ml_dtypes.bfloat16)),
    ],
)
def test_whatever_numpy_takes_becomes_a_row_major_little_endian_array(value, expected):
    operand = row_major(as_operand(value, "operand 0"))
    assert operand.dtype == expected.dtype
    assert operand.shape == expected.shape
    assert operand.flags.c_contiguous
    assert operand.dtype.byteorder in "=|<"
    np.testing.assert_array_equal(operand, expected)
    assert as_bytes_view(operand).tobytes() == np.asarray(expected).tobytes()


def test_an_array_that_has_the_form_is_not_copied():
    x = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(row_major(as_operand(x, "operand 0")), x)
    assert np.shares_memory(as_bytes_view(x), x)


def test_a_mask_is_not_lost_in_silence():
    with pytest.raises(shardcall.InvalidOperandError, match=r"filled"):
        as_operand(np.ma.masked_array([1, 2], [True, False]), "operand 0")


@rows("value", [[[1], [1, 2]], [1, [2]]])
def test_a_ragged_list_is_refused(value):
    with pytest.raises(shardcall.InvalidOperandError, match=r"operand 1 is no array"):
        as_operand(value, "operand 1")


@rows("value", [["text"], [b"text"], [None], [{1: 2}], np.array(["2020"], "M8[s]")])
def test_what_has_no_element_type_is_refused(value):
    with pytest.raises(shardcall.OperandTypeError, match=r"operand 0 has element type") as caught:
        as_operand(value, "operand 0")
    assert caught.value.field == "operand 0"


@rows("value", [2**64, -(2**63) - 1, 10**5000])
def test_integers_of_more_than_64_bits_are_named_in_the_error(value):
    with pytest.raises(shardcall.OperandTypeError, match=r"^operand 0 is an integer below -2\*\*63 or above"):
        as_operand(value, "operand 0")


def test_an_abstract_array_has_shape_type_and_size():
    x = Array((4096, np.int64(2)), "bfloat16")
    assert (x.shape, x.ndim, x.dtype, x.nbytes) == ((4096, 2), 2, np.dtype(ml_dtypes.bfloat16), 16384)
    assert Array(3, float) == Array((3,), "float64")
    assert Array((), "bool").nbytes == 1
    assert str(x) == "bfloat16[4096,2]"
    assert eval(repr(x), {"Array": Array}) == copy.deepcopy(x) == x


@rows("shape", [-1, (2, -1), "23", (1.5,), None, (2**63,)])
def test_what_is_no_shape_is_refused(shape):
    with pytest.raises(shardcall.InvalidOperandError, match=r"shape is"):
        Array(shape, "float64")


def test_types_on_the_wire():
    assert from_proto(to_proto(Array((2, 0), "int4"))) == Array((2, 0), "int4")
    assert to_proto(None) == array_pb2.ArrayType()
    assert from_proto(array_pb2.ArrayType()) is None


class Unrelated:
    pass


@rows(
    ("value", "said"),
    [
        ((i for i in range(3)), r"x is a generator, which NumPy does not read; give list\(…\), or numpy\.fromiter"),
        (map(abs, [1]), r"x is a map, which NumPy does not read; give list\(…\)"),
        ({"a": 1.0}, r"x is of type dict, which is no array of numbers; give .*, such as list\(….values\(\)\)$"),
        ({1, 2}, r"x is of type set, which is no array of numbers; give an array"),
        ("text", r"x is of type str, which is no array of numbers"),
        (b"text", r"x is of type bytes, which is no array of numbers"),
        (Unrelated, r"x is the class Unrelated, which is no array of numbers"),
        (Unrelated(), r"x is of type Unrelated, which is no array of numbers"),
        (["text"], r"x has element type <U4, which cannot travel; convert it"),
        ([Unrelated()], r"x has element type object \(from list\), which cannot travel; convert it"),
    ],
)
def test_non_numeric_arrays_are_named_by_their_type(value, said):
    with pytest.raises(shardcall.OperandTypeError, match=said):
        as_operand(value, "x")
