"""A great many round trips, and those of large arrays: more than 2 GiB, which no message and no 32-bit size holds."""

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


SHAPE = ((1 << 20) + 3, 2049)  # 2 GiB and 6 MiB of bytes; 8 does not divide the rows


@pytest.mark.parametrize("shared_memory", [False, True], ids=["stream", "shared memory"])
def test_more_than_two_gib_travel_in_both_directions(server_factory, shared_memory):
    x = np.resize(np.arange(251, dtype=np.uint8), SHAPE)
    server = server_factory("--max-call-bytes", str(5 << 30), why="its calls may be large")
    with sc.connect(server.address, shared_memory=shared_memory) as client:
        result = client.diff(x, axis=0, prepend=np.uint8(0), mesh=sc.Mesh(x=8), spec=sc.P("x", None)).array
    assert result.nbytes > 1 << 31
    assert (result[0] == x[0]).all()
    for begin in range(0, SHAPE[0] - 1, 1 << 16):  # np.diff of it all would take three times the memory
        block = x[begin : begin + (1 << 16) + 1]
        np.testing.assert_array_equal(result[begin + 1 : begin + len(block)], block[1:] - block[:-1])


def test_more_than_two_gib_stay_and_come_back(server_factory):
    x = np.resize(np.arange(253, dtype=np.uint8), SHAPE)
    size = str(5 << 30)
    limits = ("--max-resident-bytes", size, "--max-resident-bytes-per-client", size)
    server = server_factory(*limits, why="its arrays may be large")
    with sc.connect(server.address, shared_memory=False) as client:
        with client.put(x, mesh=sc.Mesh(x=8), spec=sc.P("x", None)) as resident:
            back = resident.get()
        assert back.shape == x.shape
        assert (back == x).all()
