"""Thousands of random programs: their memory, and their values on one device and on eight."""

from collections.abc import Iterator
from contextlib import suppress

import pytest
from memory_model.comparison import EagerComparison, TracedComparison, compare_drawn
from memory_model.in_process import InProcessClient
from servers import running_server

import shardcall as sc

# Programs are compared element by element, and what failed in one of them may be reported in a later one.
_IGNORED = "ignore::shardcall.ElementReadWarning", "ignore::shardcall.FailedCallWarning"
pytestmark = [pytest.mark.long, pytest.mark.fuzz, *map(pytest.mark.filterwarnings, _IGNORED)]

BLOCKS = 20
EAGER, TRACED, VALUES = 37_500 // BLOCKS, 12_500 // BLOCKS, 400 // BLOCKS
"""The programs of a block."""


@pytest.fixture(scope="module")
def one_device() -> Iterator[str]:
    with running_server(devices=1, why="it has one device") as server:
        yield server.address


@pytest.mark.parametrize("block", range(BLOCKS))
def test_thousands_of_programs_have_numpys_memory(record_property, block):
    client = InProcessClient()
    compare_drawn(EagerComparison(client.put), range(block * EAGER, (block + 1) * EAGER), record_property)
    traced = range(block * TRACED, (block + 1) * TRACED)
    compare_drawn(TracedComparison(client, client.put), traced, record_property, is_traced=True)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_many_programs_have_numpys_values_on_one_device_and_on_eight(client, one_device, record_property, block):
    numbers = range(block * VALUES, (block + 1) * VALUES)
    half = len(numbers) // 2
    with sc.connect(one_device) as fused, sc.connect(one_device, fuse=False) as unfused:
        compare_drawn(EagerComparison(unfused.put), numbers[half:], record_property)
        compare_drawn(EagerComparison(client.put), numbers[:half], record_property)
        for one in (fused, client):
            compare_drawn(EagerComparison(one.put, reads_all=False), numbers, record_property)
            compare_drawn(TracedComparison(one, one.put), numbers, record_property, is_traced=True)
        for one in (fused, unfused, client):
            with suppress(sc.InvalidOperandError):  # of statements that NumPy refuses, too
                one.synchronize()
