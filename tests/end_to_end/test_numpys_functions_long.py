"""Every family of NumPy's functions over arrays on the mesh: values, types and shapes, or errors, are NumPy's."""

import pytest
from end_to_end.numpy_calls import check_call
from end_to_end.numpy_families import CLOSE, EXACT, calls_of_families

pytestmark = pytest.mark.long


@pytest.mark.parametrize("call", calls_of_families(EXACT))
def test_results_are_numpys_to_the_last_bit(strict_client, call):
    check_call(strict_client, call, exact=True)


@pytest.mark.parametrize("call", calls_of_families(CLOSE))
def test_results_are_numpys_but_for_rounding(strict_client, call):
    check_call(strict_client, call)
