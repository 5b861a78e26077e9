"""Values of large programs, and special values of the narrower element type."""

import pytest
from array_api.test_special_values import PAIRS, REAL, check
from array_api.test_values import LONG, check_values

pytestmark = pytest.mark.long


@pytest.mark.parametrize("area", LONG, ids=lambda area: area.__name__)
def test_values_are_numpys(client, area):
    check_values(client, area)


@pytest.mark.parametrize("table", [REAL, PAIRS], ids=["real", "pairs"])
def test_special_values(client, table):
    check(client, table, "float32")
