"""Workers that are killed under chains of calls: the first call fails, and the results of the rest are lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.messages import call, open_channel
from end_to_end.processes import left_empty, stop, wait_for
from faults.raw_call_stream import RawCallStream, delete, diff_of, prepare, reason, result, run
from servers import ServerProcess, running_server

import shardcall as sc

pytestmark = pytest.mark.long

CHAIN = 32


@pytest.fixture(scope="module")
def launching() -> Iterator[ServerProcess]:
    flags = ("--max-launched-calls", str(2 * CHAIN), "--lease-s", "3")
    with running_server(*flags, devices=1, why="its workers are killed") as running:
        yield running


@pytest.fixture
def server(launching: ServerProcess) -> Iterator[ServerProcess]:
    """A server whose worker each test kills; it has another."""
    with sc.connect(launching.address) as client:
        wait_for(lambda: client.usage().mesh.ready)
    with left_empty(launching):
        yield launching


def is_launched(client: sc.Client) -> bool:
    """Returns whether the server has launched all of a chain that it launches before the mesh answers.

    These are all calls; or two if the program is slow, as any is that has not run or whose last run was held up: the
    third is queued, and the others wait for it without slots.
    """
    usage = client.usage()
    return (usage.calls, usage.queued_calls) in {(CHAIN, 0), (3, 1)}


def test_a_chain_whose_worker_is_killed_fails_at_its_first_call_and_is_lost_at_the_rest(server):
    (worker,) = server.worker_pids()
    x, lease, handles = np.ones(8), b"lease of the chain", [bytes([i]) * 16 for i in range(1, CHAIN + 2)]
    with (
        sc.connect(server.address) as client,  # before the watchdog looks at the stopped worker
        open_channel(server.address) as channel,
        RawCallStream(channel) as stream,
    ):
        stream.send(prepare(0, call("add"), (8,), (8,), keep_results=True, lease_id=lease))
        stream.send(diff_of(8, slot=1), run(0, x, x, result_handles=handles[:1]), run(1000, x, slot=1))
        stream.send(run(999, handles[0], x, result_handles=[b"compiled" * 2]))
        for number in (0, 999, 1000):
            assert not reason(stream.answer(number))
        stop(worker)
        stream.send(*(run(i, handles[i - 1], x, result_handles=[handles[i]]) for i in range(1, CHAIN + 1)))
        wait_for(lambda: is_launched(client))
        os.kill(worker, signal.SIGKILL)
        assert reason(stream.answer(1)) == "MESH_RESTARTED"
        assert {reason(stream.answer(i)) for i in range(2, CHAIN + 1)} == {"ARRAY_LOST"}
        stream.send(delete(*handles), run(1001, x, slot=1))
        assert result(stream.answer(1001)).tolist() == [0.0] * 7


@pytest.mark.parametrize("has_run", [True, False])
def test_a_submitted_chain_whose_worker_is_killed_fails_at_its_first_call_and_is_lost_at_the_rest(server, has_run):
    (worker,) = server.worker_pids()
    # The other client is there before the watchdog looks at the stopped worker; the server counts the calls.
    with sc.connect(server.address) as other, sc.connect(server.address, fuse=False) as client:
        x = client.put(np.ones(8))
        client.compile("add", x, 1.0)
        if has_run:
            client.submit("add", x, 1.0).get()
        stop(worker)
        chain = [client.submit("add", x, 1.0)]
        for _ in range(CHAIN - 1):
            chain.append(client.submit("add", chain[-1], 1.0))
        wait_for(lambda: is_launched(other))
        os.kill(worker, signal.SIGKILL)
        for array in reversed(chain[1:]):
            with pytest.raises(sc.ArrayLostError) as caught:
                array.get()
            assert isinstance(caught.value.__cause__, sc.MeshRestartedError)
        with pytest.raises(sc.MeshRestartedError, match=r"^add of float64"):
            chain[0].get()
        client.synchronize()  # the error was raised
        np.testing.assert_array_equal(client.submit("add", np.ones(4), 1.0), np.full(4, 2.0))  # a program of its own
