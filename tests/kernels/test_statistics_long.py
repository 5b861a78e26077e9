"""Running products, counts and positions in every layout, of every type and of many sizes."""

import pytest
from kernels import test_statistics as short
from kernels.conftest import with_cases
from kernels.test_statistics import LAYOUTS

pytestmark = pytest.mark.long


test_running_products_are_numpys = with_cases(short.test_running_products_are_numpys, {"layout": LAYOUTS})
test_positions_are_numpys = with_cases(short.test_positions_are_numpys, {"layout": LAYOUTS, "side": ["left", "right"]})
test_positions_among_any_count_of_numbers = with_cases(
    short.test_positions_among_any_count_of_numbers, {"counts": [(1, 2, 3, 4, 7, 8, 63, 64, 4095, 4099)]}
)
test_counts_are_numpys = with_cases(short.test_counts_are_numpys, {"spec": ["x", None]})
test_counts_of_many_integers = with_cases(
    short.test_counts_of_many_integers,
    {
        "name": ["uint64", "int64", "uint8", "int8", "bool"],
        "sharded": [(40_003, {"x": 3}), (40_000, {"x": 8}), (40_003, {"x": 1})],
    },
)
test_interpolations_are_numpys = with_cases(short.test_interpolations_are_numpys, {"layout": LAYOUTS})
