"""The tests of `test_exchange.py` that take long."""

import itertools

import numpy as np
import pytest
from kernels.test_exchange import MODES, ROW_CASES, ROW_LAYOUTS, along_rows, check, exchanged, on_blocks, taken

from shardcall_core.element_types import NAMED
from shardcall_server.kernels.stencils.exchange import rows_after, rows_before

pytestmark = pytest.mark.long

COMPLETE = [*itertools.product(MODES, itertools.product((1, 2, 3, 8), (1, 7, 8, 17, 24), (0, 4), (2, 5)))]


@pytest.mark.parametrize(("boundary", "case"), COMPLETE)
def test_the_complete_table_is_extended_as_np_pad_extends_it(same, boundary, case):
    check(same, *case, boundary)


@pytest.mark.parametrize("name", ["bool", "complex64", "float8_e4m3fn", "int8", "bfloat16"])
def test_element_types_come_through(same, name):
    check(same, 8, 61, 2, 3, "edge", NAMED[name])


@pytest.mark.parametrize("boundary", ["zero", "periodic", "none"])
@pytest.mark.parametrize("count", [1, 8])
def test_one_neighbour_costs_one_permute_of_what_is_needed(boundary, count):
    along = along_rows(8, 64)
    for exchange in (rows_before(along, count, boundary), rows_after(along, count, boundary)):
        _, text = on_blocks(exchange, np.zeros((64, 3), np.float32), along)
        assert text.count(" collective-permute(") == 1
        assert f"f32[{count},3]{{1,0}} collective-permute(" in text
        assert "all-gather" not in text


@pytest.mark.parametrize("layout", range(len(ROW_LAYOUTS)))
def test_rows_are_exchanged_in_every_layout(run, values, same_bits, layout):
    calls = [exchanged(run, values, i, layout) for i in range(len(ROW_CASES))]
    run.check_together([*calls, *taken(run, values, layout)], same_bits, 7)
