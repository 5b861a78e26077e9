"""Python numbers beside arrays take the types that NumPy's addition gives them, whatever the function."""

import ml_dtypes
import numpy as np
import pytest

from shardcall.methods.scalars import typed


@pytest.mark.parametrize("name", ["add", "maximum", "where", "clip"])
@pytest.mark.parametrize(
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
