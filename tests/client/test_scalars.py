"""Python numbers beside arrays take the types that NumPy's addition gives them, whatever the function."""

import ml_dtypes
import numpy as np
import pytest
from rows import rows

from shardcall._src.device_arrays.scalars import clip_operands, typed, typed_initial
from shardcall_core.types.errors import OperandOverflowError


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
    beside = np.asarray(typed(name, (array, number))[1])
    assert np.result_type(array, beside) == np.add(array, number).dtype == dtype


def test_bounds_that_no_element_can_be_beyond_count_for_nothing():
    assert clip_operands(np.ones(2, np.uint8), -1, 300)[1:] == (None, None)
    assert clip_operands(np.ones(2, np.uint8), 1, 254)[1:] == (1, 254)
    assert clip_operands(np.ones(2, ml_dtypes.int4), -9, 7)[1:] == (None, None)
    assert clip_operands(np.ones(2, np.float32), -(2**70), None)[1:] == (-(2.0**70), None)
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
