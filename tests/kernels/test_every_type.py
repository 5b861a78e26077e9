"""Results of every element type are NumPy's: every bit of what is moved, and what is computed of small numbers."""

from functools import partial

import pytest
from kernels.conftest import assert_same_bits
from kernels.type_cases import computing_calls, moving_calls


@pytest.mark.parametrize("devices", [3])
def test_every_bit_is_moved(run, values, dtype, devices):
    run.check_together(moving_calls(run, values, dtype, {"x": devices}), partial(assert_same_bits, any_nan=devices > 1))


def test_what_is_computed_of_small_numbers_is_exact(run, values, dtype):
    run.check_together(computing_calls(run, values, dtype))
