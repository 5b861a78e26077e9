"""The tests of `test_round_trips.py` that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_round_trips import LAYOUTS, MIB, SHORT_CHUNK, Case, bits, cases, numpys
from hypothesis import given, settings
from pairs import pairs_of
from servers import holds_nothing, running_server

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def short_chunks() -> Iterator[sc.Client]:
    """A client that sends and receives in many short chunks what elsewhere is one message."""
    flags = "--max-inline-bytes", str(SHORT_CHUNK // 2), "--max-chunk-bytes", str(SHORT_CHUNK)
    with (
        running_server(*flags, why="its chunks are short") as server,
        sc.connect(server.address, shared_memory=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def round_trip(client, streaming, short_chunks) -> Iterator[Callable[[Case], None]]:
    """Makes a round trip and compares; afterwards the servers hold nothing."""
    clients = {"streamed": streaming, "in short chunks": short_chunks}

    def make(case: Case) -> None:
        value = case.value
        expected = numpys(value)
        through = clients.get(case.transport, client)
        if case.transport == "in shared memory":
            value = client.empty(expected.shape, expected.dtype)
            value[...] = expected
        with through.put(value, mesh=case.mesh, spec=case.spec) as there:
            assert (there.shape, there.dtype) == (expected.shape, expected.dtype)
            back = there.get()
        assert (back.shape, back.dtype) == (expected.shape, expected.dtype)
        assert bits(back) == bits(expected)

    yield make
    assert client.list() == streaming.list() == short_chunks.list() == []
    wait_for(lambda: holds_nothing(short_chunks))


@settings(max_examples=20_000, deadline=None)
@given(case=cases())
def test_a_great_many_arrays_come_back_bit_for_bit(round_trip, case):
    round_trip(case)


@pytest.mark.parametrize(("layout", "path"), pairs_of([*LAYOUTS], ["shared", "streamed"]))
def test_large_arrays_of_every_layout_come_back_too(round_trip, layout, path):
    for dtype in (np.dtype(np.float64), np.dtype(np.uint8)):
        shape = () if layout == "scalar" else (5 * MIB // dtype.itemsize // 23, 23)
        round_trip(Case(dtype, shape, layout, path, sc.Mesh(a=4, b=2), None, seed=1))
