"""Arrays of more than 2 GiB, which no single message and no 32-bit size can hold."""

import numpy as np
import pytest

import shardcall as sc
from shardcall import P

SHAPE = ((1 << 20) + 3, 2049)  # 2 GiB and 6 MiB of bytes; 8 does not divide the rows

pytestmark = pytest.mark.long


@pytest.mark.parametrize("shared_memory", [False, True], ids=["stream", "shared memory"])
def test_more_than_two_gib_travel_in_both_directions(server_factory, shared_memory):
    x = np.resize(np.arange(251, dtype=np.uint8), SHAPE)
    server = server_factory("--max-call-bytes", str(5 << 30), why="its calls may be large")
    with sc.connect(server.address, shared_memory=shared_memory) as client:
        result = client.diff(x, axis=0, prepend=np.uint8(0), mesh=sc.Mesh(x=8), spec=P("x", None)).array
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
        with client.put(x, mesh=sc.Mesh(x=8), spec=P("x", None)) as resident:
            back = resident.get()
        assert back.shape == x.shape
        assert (back == x).all()
