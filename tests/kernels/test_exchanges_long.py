"""Calls that exchange rows in every layout."""

import pytest
from kernels.test_exchanges import CASES, LAYOUTS, exchanged, taken

pytestmark = pytest.mark.long


@pytest.mark.parametrize("layout", range(len(LAYOUTS)))
def test_rows_are_exchanged_in_every_layout(run, values, same_bits, layout):
    calls = [exchanged(run, values, i, layout) for i in range(len(CASES))]
    run.check_together([*calls, *taken(run, values, layout)], same_bits, 7)
