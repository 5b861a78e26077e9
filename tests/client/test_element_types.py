import ml_dtypes
import numpy as np
import pytest
from rows import rows

import shardcall
from shardcall.v1 import array_pb2
from shardcall_core.types.element_types import NAMES, parse_dtype, to_dtype, to_element_type

ALL = [code for code in array_pb2.ElementType.values() if code != array_pb2.ELEMENT_TYPE_UNSPECIFIED]


@rows("code", ALL)
def test_every_element_type_of_the_contract_has_a_dtype_and_back(code):
    dtype = to_dtype(code)
    assert to_element_type(dtype) == code
    assert array_pb2.ElementType.Name(code) == f"ELEMENT_TYPE_{dtype.name.upper()}"
    assert parse_dtype(dtype.name) == parse_dtype(dtype.type) == parse_dtype(dtype) == dtype


def test_type_names_are_reported():
    assert len(NAMES) == len(ALL)
    assert "bfloat16" in NAMES


def test_equivalent_type_names_are_one_type():
    assert to_element_type(np.dtype(np.longlong)) == array_pb2.ELEMENT_TYPE_INT64
    assert to_element_type(np.dtype(">f8")) == array_pb2.ELEMENT_TYPE_FLOAT64
    assert parse_dtype(float) == np.float64
    assert parse_dtype(">i4") == np.dtype(np.int32)
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


@rows("dtype", ["M8[s]", "m8[ns]"])
def test_dates_and_times_are_refused_with_a_workaround(dtype):
    with pytest.raises(shardcall.OperandTypeError, match=r"cannot travel; give its integers, \.view\('int64'\)"):
        shardcall._src.device_arrays.operands.as_operand(np.zeros(3, dtype), "x")


def test_long_doubles_are_refused_where_they_are_longer():
    if np.dtype(np.longdouble).itemsize == 8:
        pytest.skip("long double is double here")
    for dtype in (np.longdouble, np.clongdouble):
        with pytest.raises(shardcall.OperandTypeError, match=r"float64"):
            to_element_type(np.dtype(dtype))


@rows("value", ["float65", "", None, 3, object()])
def test_what_is_no_dtype_is_refused(value):
    with pytest.raises(
        shardcall.OperandTypeError, match=r"dtype is .*, which names no element type; give one of: bool"
    ):
        parse_dtype(value)


def test_a_type_of_a_newer_server_is_an_error_with_advice():
    with pytest.raises(shardcall.ProtocolError, match=r"update shardcall"):
        to_dtype(max(ALL) + 1)
