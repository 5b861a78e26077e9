"""Values that become operands, and their types."""

import copy

import ml_dtypes
import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall import Array
from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.scalars import clip_operands, typed, typed_initial
from shardcall.v1 import array_pb2
from shardcall_core.types.arrays import as_bytes_view, from_proto, row_major, to_proto
from shardcall_core.types.element_types import NAMES, parse_dtype, to_dtype, to_element_type
from shardcall_core.types.errors import OperandOverflowError

# Arrays


DATES = np.array(["2020"], "M8[s]")
TYPE = shardcall.OperandTypeError


class HasArray:
    def __array__(self, dtype=None, copy=None):
        return np.arange(3.0)


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
        (np.array([1, 2], ">i4"), np.array([1, 2], np.int32)),
        (np.arange(6.0).reshape(2, 3).T, np.arange(6.0).reshape(2, 3).T),
    ],
)
def test_whatever_numpy_takes_becomes_a_row_major_little_endian_array(value, expected):
    operand = row_major(as_operand(value, "operand 0"))
    np.testing.assert_array_equal(operand, expected, strict=True)
    assert operand.flags.c_contiguous
    assert operand.dtype.byteorder in "=|<"
    assert as_bytes_view(operand).tobytes() == np.asarray(expected).tobytes()


def test_an_array_that_has_the_form_is_not_copied():
    x = np.arange(6.0).reshape(2, 3)
    assert np.shares_memory(row_major(as_operand(x, "operand 0")), x)
    assert np.shares_memory(as_bytes_view(x), x)


@rows(
    ("value", "error", "says"),
    [
        (np.ma.masked_array([1, 2], [True, False]), shardcall.InvalidOperandError, "filled"),
        *((value, shardcall.InvalidOperandError, "^x is no array") for value in ([[1], [1, 2]], [1, [2]])),
        *((value, TYPE, "^x has element type") for value in (["text"], [b"text"], [None], [{1: 2}], DATES)),
        *((dates, TYPE, r"cannot travel; give its integers, \.view\('int64'\)") for dates in (DATES, DATES - DATES)),
        *((value, TYPE, r"^x is an integer below -2\*\*63 or above") for value in (2**64, -(2**63) - 1, 10**5000)),
    ],
)
def test_what_is_no_array_of_an_element_type_is_refused(value, error, says):
    with pytest.raises(error, match=says) as caught:
        as_operand(value, "x")
    assert caught.value.field == "x"


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


# Element types


ALL = [code for code in array_pb2.ElementType.values() if code != array_pb2.ELEMENT_TYPE_UNSPECIFIED]


@rows("code", ALL)
def test_every_element_type_of_the_contract_has_a_dtype_and_back(code):
    dtype = to_dtype(code)
    assert to_element_type(dtype) == code
    assert array_pb2.ElementType.Name(code) == f"ELEMENT_TYPE_{dtype.name.upper()}"
    assert parse_dtype(dtype.name) == parse_dtype(dtype.type) == parse_dtype(dtype) == dtype


def test_equivalent_type_names_are_one_type():
    assert len(NAMES) == len(ALL)
    assert "bfloat16" in NAMES
    assert to_element_type(np.dtype(np.longlong)) == array_pb2.ELEMENT_TYPE_INT64
    assert to_element_type(np.dtype(">f8")) == array_pb2.ELEMENT_TYPE_FLOAT64
    assert (parse_dtype(float), parse_dtype(">i4")) == (np.float64, np.dtype(np.int32))
    assert parse_dtype(">i4").isnative


@rows(
    "dtype",
    [
        *(np.dtype(code) for code in (object, "U3", "S3", "V4", [("a", "f8")], ml_dtypes.float8_e4m3b11fnuz)),
        *(np.dtypes.StringDType(), np.dtype(ml_dtypes.int2)),
    ],
)
def test_other_types_are_refused_with_what_is_allowed(dtype):
    with pytest.raises(shardcall.OperandTypeError, match=r"convert it to one of: bool, int8.*complex128") as caught:
        to_element_type(dtype, "operand 0")
    assert caught.value.field == "operand 0"
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_long_doubles_are_refused_where_they_are_longer():
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("long double is double here")
    for dtype in (np.longdouble, np.clongdouble):
        with pytest.raises(shardcall.OperandTypeError, match=r"float64"):
            to_element_type(np.dtype(dtype))


@rows("value", ["float65", "", None, 3, object()])
def test_what_is_no_dtype_is_refused(value):
    with pytest.raises(TYPE, match=r"dtype is .*, which names no element type; give one of: bool"):
        parse_dtype(value)


def test_a_type_of_a_newer_server_is_an_error_with_advice():
    with pytest.raises(shardcall.ProtocolError, match=r"update shardcall"):
        to_dtype(max(ALL) + 1)


# Numbers beside arrays


@rows("name", ["add", "maximum", "where", "clip"])
@rows(
    ("of_array", "number", "dtype"),
    [
        *(("int8", 2, "int8"), ("float16", 0.5, "float16"), ("int8", 0.5, "float64")),
        *((ml_dtypes.bfloat16, 0.5, "float32"), (ml_dtypes.float8_e5m2, 2j, "complex64")),
    ],
)
def test_numbers_take_the_type_of_a_sum(name, of_array, number, dtype):
    array = np.ones(2, of_array)
    assert np.result_type(array, np.asarray(typed(name, (array, number))[1])) == np.add(array, number).dtype == dtype


def test_bounds_that_no_element_can_be_beyond_count_for_nothing():
    assert clip_operands(np.ones(2, np.uint8), 1, 254)[1:] == (1, 254)
    assert clip_operands(np.ones(2, ml_dtypes.int4), -9, 7)[1:] == (None, None)
    assert clip_operands([1, 2], -(2**70), 2**70)[1:] == (None, None)


def test_integers_that_do_not_fit_are_reported_by_their_size():
    for number, size in ((300, "300"), (10**100, "of 333 bits")):
        with pytest.raises(OverflowError, match=f"the integer {size} beside an array of uint8 does not fit uint8"):
            typed("add", (np.ones(2, np.uint8), number))
    with pytest.raises(OperandOverflowError, match="beside Python's numbers does not fit int64"):
        typed("add", (2**63, 1.5))


def test_where_takes_the_integers_that_it_takes_in_numpy():
    """From NumPy 2.5 on, none that the type does not hold."""
    array = np.ones(2, np.uint8)
    for number in (3, -3, 300, 2**63):
        try:
            expected = np.where([False, True], array, number)
        except OverflowError:
            with pytest.raises(OperandOverflowError, match="does not fit uint8"):
                typed("where", (True, array, number))
        else:
            np.testing.assert_array_equal(typed("where", (True, array, number))[2], expected[0])


def test_reductions_begin_with_a_number_of_the_results_type():
    assert typed_initial("sum", np.ones(2, np.int8), None, 300).dtype == np.int64
    assert typed_initial("max", np.ones(2, np.float16), None, 3).dtype == np.float16
    assert typed_initial("sum", np.ones(2, ml_dtypes.bfloat16), "float32", 3).dtype == np.float32
    assert typed_initial("max", [True], None, True) is True
    assert typed_initial("max", 1, None, 2**70) == 2**70
    with pytest.raises(OperandOverflowError, match="for a result of uint8"):
        typed_initial("max", np.ones(2, np.uint8), None, -1)
