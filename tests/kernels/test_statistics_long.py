"""Running products, counts and positions in every layout, of every type and of many sizes."""

import numpy as np
import pytest
from kernels import test_statistics as short
from kernels.conftest import ELEMENT_TYPES, with_cases
from kernels.test_statistics import (
    KERNELS,
    LAYOUTS,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("dtype", ELEMENT_TYPES)
def test_positions_of_every_type(run, values, same, dtype):
    a, v = np.sort(values.small((40,), dtype)), values.small((4099,), dtype)
    wide = complex if dtype.kind == "c" else float
    a = np.sort(a.astype(wide)).astype(dtype)
    same(run(KERNELS["searchsorted"], a, v, mesh={"x": 3}), np.searchsorted(a.astype(wide), v.astype(wide)))


test_running_products_are_numpys = with_cases(short.test_running_products_are_numpys, {"layout": LAYOUTS})
test_positions_are_numpys = with_cases(short.test_positions_are_numpys, {"layout": LAYOUTS, "side": ["left", "right"]})
test_positions_among_any_count_of_numbers = with_cases(
    short.test_positions_among_any_count_of_numbers, {"count": [1, 2, 3, 4, 7, 8, 63, 64, 4095, 4099]}
)
test_positions_among_the_extremes = with_cases(short.test_positions_among_the_extremes, {"numbers": short.EXTREMES})
test_counts_are_numpys = with_cases(short.test_counts_are_numpys, {"spec": ["x", None]})
test_counts_of_many_integers = with_cases(
    short.test_counts_of_many_integers,
    {
        "name": ["uint64", "int64", "uint8", "int8", "bool"],
        "sharded": [(40_003, {"x": 3}), (40_000, {"x": 8}), (40_003, {"x": 1})],
    },
)
test_interpolations_are_numpys = with_cases(short.test_interpolations_are_numpys, {"layout": LAYOUTS})
