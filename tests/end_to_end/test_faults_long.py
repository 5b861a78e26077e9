"""Workers that are killed in a call, and signals to all processes while a call runs."""

import os
import signal
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.processes import X, computing, wait_for
from end_to_end.test_faults import MESH
from servers import alive, holds_nothing

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

LONG = np.ones((3000, 3000))  # 54 GFLOP squared: about a second here


def test_after_a_worker_is_killed_in_a_call_the_call_fails_or_is_repeated_and_the_next_is_right(exclusive):
    with (
        sc.connect(exclusive.address) as client,
        sc.connect(exclusive.address, retries=False, shared_memory=False) as plain,
        ThreadPoolExecutor(1) as pool,
    ):

        def kill_in_the_middle(caller: sc.Client) -> tuple[int, Future[sc.Result]]:
            client.compile("matmul", sc.Array(LONG.shape, "float64"), sc.Array(LONG.shape, "float64"))
            (worker,) = exclusive.worker_pids()
            busy = computing(worker)
            call = pool.submit(caller.matmul, LONG, LONG)
            wait_for(busy)
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
        assert exclusive.process.poll() is None
        assert client.server_info().epoch != epoch
        (successor,) = exclusive.worker_pids()
        assert successor != worker
        assert not alive(worker)
        client.close()
        wait_for(lambda: holds_nothing(plain))


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
