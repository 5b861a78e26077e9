"""The tests of `test_faults.py` that take long."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.processes import X, computing, cpu_s, is_busy, left_empty, wait_for
from end_to_end.test_faults import MESH
from servers import ServerProcess, alive, holds_nothing, running_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

LONG = np.ones((3000, 3000))  # 54 GFLOP squared: about a second here


@pytest.fixture(scope="module")
def robust_server() -> Iterator[ServerProcess]:
    with running_server("--trim-after-s", "0.2", why="its worker is killed") as server:
        yield server


@pytest.fixture
def robust(robust_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server that outlives what the tests do to its mesh, and gives memory back soon."""
    with left_empty(robust_server) as server:
        yield server


def test_after_a_worker_is_killed_in_a_call_the_call_fails_or_is_repeated_and_the_next_is_right(robust):
    with (
        sc.connect(robust.address) as client,
        sc.connect(robust.address, retries=False, shared_memory=False) as plain,
        ThreadPoolExecutor(1) as pool,
    ):

        def kill_in_the_middle(caller: sc.Client) -> tuple[int, Future[sc.Result]]:
            client.compile("matmul", sc.Array(LONG.shape, "float64"), sc.Array(LONG.shape, "float64"))
            (worker,) = robust.worker_pids()
            before_call = cpu_s(worker)
            call = pool.submit(caller.matmul, LONG, LONG)
            wait_for(lambda: cpu_s(worker) > before_call + 0.3)
            os.kill(worker, signal.SIGKILL)
            return worker, call

        _, repeated = kill_in_the_middle(client)
        assert (repeated.result(120).array == len(LONG)).all()

        epoch = client.server_info().epoch
        worker, call = kill_in_the_middle(plain)
        with pytest.raises(sc.MeshRestartedError) as caught:
            call.result(120)
        assert caught.value.reason == "MESH_RESTARTED"
        assert caught.value.metadata == {"ended": "killed"}
        assert "killed from outside" in str(caught.value)
        assert isinstance(caught.value, ConnectionError)
        assert caught.value.timing.total > 0

        result = client.diff(X, axis=0, prepend=0.0, mesh=MESH, spec=P("x", None))
        np.testing.assert_array_equal(result.array, np.diff(X, axis=0, prepend=0.0))
        assert robust.process.poll() is None
        assert client.server_info().epoch != epoch
        (successor,) = robust.worker_pids()
        assert successor != worker
        assert not alive(worker)
        client.close()
        wait_for(lambda: holds_nothing(plain))


def test_calls_that_wait_while_the_mesh_restarts_are_answered_by_the_next(robust, call_stream):
    with sc.connect(robust.address, call_stream=call_stream) as client:
        for _ in range(2):
            (worker,) = robust.worker_pids()
            os.kill(worker, signal.SIGKILL)
            wait_for(lambda worker=worker: worker not in robust.worker_pids())  # the front end has noticed
            np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


def test_a_stopped_worker_costs_its_callers_their_deadline_and_causes_no_hang(robust):
    with (
        sc.connect(robust.address) as client,
        sc.connect(robust.address, call_stream=False) as unary,
        ThreadPoolExecutor(12) as pool,
    ):
        client.diff(X, axis=0)
        (worker,) = robust.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        began = time.monotonic()
        calls = [pool.submit(one.diff, X, axis=0, timeout=3.0) for one in (client, unary) * 6]
        for call in calls:
            with pytest.raises(sc.DeadlineExceededError) as caught:
                call.result(120)
            assert caught.value.reason == "DEADLINE_EXCEEDED"
            doing = ("running the kernel", "waiting for the mesh")  # the mesh has some of them, the others are queued
            assert any(text in str(caught.value) for text in doing)
        assert time.monotonic() - began < 36.0  # one after the other they would take as long or longer
        assert client.server_info().platform == "cpu"  # what needs no mesh is answered meanwhile
        os.kill(worker, signal.SIGCONT)
        np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))


def test_a_worker_busy_in_a_kernel_ends_with_its_front_end_too(server_factory):
    server = server_factory(why="it is killed")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        (worker,) = server.worker_pids()
        client.compile("matmul", sc.Array(LONG.shape, "float64"), sc.Array(LONG.shape, "float64"))
        busy = computing(worker)
        call = pool.submit(client.matmul, LONG, LONG)
        wait_for(busy)
        server.process.kill()
        wait_for(lambda: not alive(worker))
        with pytest.raises(sc.ServerUnavailableError):
            call.result(120)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_a_signal_to_all_processes_drains(server_factory, number):
    server = server_factory("--drain-s", "120", why="it drains")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        (worker,) = server.worker_pids()
        client.compile("matmul", sc.Array(LONG.shape, "float64"), sc.Array(LONG.shape, "float64"))
        busy = computing(worker)
        call = pool.submit(client.matmul, LONG, LONG)
        wait_for(busy)
        os.kill(worker, number)
        server.process.send_signal(number)
        assert call.result(120).array[0, 0] == 3000.0
    assert server.process.wait(150) == 0
    assert not alive(worker)


def test_a_second_signal_ends_at_once(server_factory):
    server = server_factory(devices=1, why="it is ended")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        call = pool.submit(client.diff, X, axis=0, timeout=200)
        wait_for(lambda: is_busy(client))
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: _refuses(client))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 128 + signal.SIGTERM
        wait_for(lambda: not alive(worker))
        with pytest.raises(sc.ServerUnavailableError):
            call.result(120)


def _refuses(client: sc.Client) -> bool:
    try:
        client.kernels()
    except (sc.ServerUnavailableError, sc.CallCancelledError):
        return True
    return False
