"""Values of large programs, special values of the narrower element type, and parts of results by their names."""

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


def test_parts_of_sets_have_names(client):
    x = client.put(np.array([2.0, 1.0, 2.0]))
    counted, inverse = client.xp.unique_counts(x), client.xp.unique_inverse(x)
    assert (counted.values.get().tolist(), counted.counts.get().tolist()) == ([1, 2], [1, 2])
    assert (inverse.values.get().tolist(), inverse.inverse_indices.get().tolist()) == ([1, 2], [1, 0, 1])
