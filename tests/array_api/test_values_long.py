"""Values of large programs, and special values of the narrower element types."""

import pytest
from array_api.test_special_values import COMPLEX, PAIRS, REAL, check
from array_api.test_values import LARGE, check_values

pytestmark = pytest.mark.long


@pytest.mark.parametrize("area", LARGE, ids=lambda area: area.__name__)
def test_values_are_numpys(client, area):
    check_values(client, area)


@pytest.mark.parametrize(("table", "dtype"), [(REAL, "float32"), (PAIRS, "float32"), (COMPLEX, "complex64")])
def test_special_values(client, table, dtype):
    check(client, table, dtype)
