"""The tests of `test_generated_functions.py` that take long."""

import pytest
from end_to_end.test_generated_functions import check

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", range(8, 208))
def test_large_functions_have_the_derivatives_of_jax(client, seed):
    check(client, seed, 5)
