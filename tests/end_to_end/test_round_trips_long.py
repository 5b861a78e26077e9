"""A great many round trips, and those of large arrays."""

from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_round_trips import LAYOUTS, MIB, Case, cases, check
from hypothesis import given, settings
from servers import holds_nothing, running_server

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def short_chunks() -> Iterator[sc.Client]:
    """A client that sends and receives in many short chunks what elsewhere is one message."""
    flags = "--max-inline-bytes", str(2 << 10), "--max-chunk-bytes", str(4 << 10)
    with (
        running_server(*flags, why="its chunks are short") as server,
        sc.connect(server.address, shared_memory=False) as client,
    ):
        yield client
        wait_for(lambda: holds_nothing(client))


@settings(max_examples=5_000, deadline=None)
@given(case=cases("in short chunks"))
def test_a_great_many_arrays_come_back_bit_for_bit(client, streaming, short_chunks, case):
    check(case, client, {"streamed": streaming, "in short chunks": short_chunks}.get(case.transport, client))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("path", ["shared", "streamed"])
def test_large_arrays_of_every_layout_come_back_too(client, streaming, layout, path):
    for dtype in (np.dtype(np.float64), np.dtype(np.uint8)):
        shape = () if layout == "scalar" else (5 * MIB // dtype.itemsize // 23, 23)
        case = Case(dtype, shape, layout, path, sc.Mesh(a=4, b=2), None, seed=1)
        check(case, client, streaming if path == "streamed" else client)
