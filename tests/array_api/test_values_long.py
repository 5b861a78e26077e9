"""Values of large programs, special values of the narrower element type, and sets."""

import numpy as np
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


def test_sets_are_those_of_numpy_but_for_nan(client):
    values = np.array([2.0, np.nan, 1.0, 2.0, np.nan])
    x = client.put(values)
    counted, inverse = client.xp.unique_counts(x), client.xp.unique_inverse(x)
    for item in (counted.values, inverse.values, client.xp.unique_values(x)):
        np.testing.assert_array_equal(item.get(), [1, 2, np.nan, np.nan])
    assert counted.counts.get().tolist() == [1, 2, 1, 1]
    np.testing.assert_array_equal(inverse.values.get()[inverse.inverse_indices.get()], values)
