"""Workers that are killed: their replacement, its delay, and that every call gets a right answer or an error."""

import os
import signal
import time

import pytest
from end_to_end.processes import wait_for
from faults.callers import Callers, small_diff
from faults.long_programs import works
from servers import ServerProcess, alive, holds_nothing

import shardcall as sc

pytestmark = pytest.mark.long

CLIENTS, KILLS = 20, 20


def worker_and_spare(server: ServerProcess, client: sc.Client) -> tuple[int, int]:
    """The worker and the spare, once it is ready; the spare has no memory of calls and no threads of XLA's."""
    wait_for(lambda: client.usage().mesh.spare_ready and len(server.worker_pids()) == 2)
    by_threads = sorted(server.worker_pids(), key=lambda pid: len(os.listdir(f"/proc/{pid}/task")))
    return by_threads[1], by_threads[0]


def ends_cleanly_during_a_restart(server: ServerProcess, client: sc.Client) -> None:
    for pid in server.worker_pids():  # the spare too, so that the restart takes a while
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not client.usage().mesh.ready)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0


def test_a_spare_that_died_first_has_no_effect(server_factory):
    """Each spare but the last is waited for, and a spare that died has a successor 10 s later at the earliest."""
    server, ends = server_factory("--spare-worker", why="its worker is killed"), 2
    with sc.connect(server.address) as client:
        works(client)
        worker, spare = worker_and_spare(server, client)
        os.kill(spare, signal.SIGKILL)
        wait_for(lambda: spare not in server.worker_pids())
        assert worker_and_spare(server, client)[0] == worker
        assert client.usage().mesh.restarts == 0
        for _ in range(ends):
            worker, spare = worker_and_spare(server, client)
            os.kill(spare, signal.SIGKILL)
            os.kill(worker, signal.SIGKILL)
            works(client)
        mesh = client.usage().mesh
        assert (mesh.ready, mesh.last_exit_reason) == (True, "ended by signal 9 (SIGKILL)")
        assert mesh.restarts >= ends


def test_a_stopped_spare_does_not_keep_the_mesh_down(server_factory):
    server = server_factory("--spare-worker", "--worker-silence-s", "3", why="its worker is killed")
    with sc.connect(server.address) as client:
        works(client)
        worker, spare = worker_and_spare(server, client)
        os.kill(spare, signal.SIGSTOP)
        os.kill(worker, signal.SIGKILL)
        works(client)
        assert not alive(spare)
        assert client.usage().mesh.last_exit_reason.startswith("the worker did not answer for ")


def test_a_server_set_to_keep_none_has_no_spare_and_a_signal_ends_it(server_factory):
    server = server_factory("--no-spare-worker", why="its worker is killed")
    with sc.connect(server.address) as client:
        works(client)
        os.kill(server.worker_pids()[0], signal.SIGKILL)
        works(client)
        assert len(server.worker_pids()) == 1
        assert not client.usage().mesh.spare_ready
        ends_cleanly_during_a_restart(server, client)


def test_workers_killed_under_load_cost_no_right_answer(server_factory, figure):
    """Each time the spare takes over, and another stands by; a signal ends them all."""
    server = server_factory("--spare-worker", why="its worker is killed")
    before, killed = set(os.listdir("/dev/shm")), list[int]()
    with sc.connect(server.address) as client:
        works(client)
        worker, spare = worker_and_spare(server, client)
        with Callers(frozenset({"MESH_RESTARTED"})).calling(server.address, [small_diff] * CLIENTS) as callers:
            wait_for(lambda: len(callers.right()) > CLIENTS)
            for _ in range(KILLS):
                killed.append(worker)
                moment = time.monotonic()
                os.kill(worker, signal.SIGKILL)
                wait_for(lambda moment=moment: bool(callers.right(moment)))
                successor = spare
                worker, spare = worker_and_spare(server, client)
                assert worker == successor
        assert callers.wrong == []
        assert client.usage().mesh.restarts >= KILLS
        wait_for(lambda: holds_nothing(client))
        # Ended processes that were not waited for would still be among the children.
        assert not {*killed} & {*server.worker_pids()}
        pids = [*server.worker_pids(), *killed]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    wait_for(lambda: not any(map(alive, pids)))
    assert {name for name in set(os.listdir("/dev/shm")) - before if "shardcall" in name} == set()
    figure(f"{KILLS} kills: {callers}")


def test_a_second_signal_during_a_restart_ends_at_once(server_factory, tmp_path):
    server = server_factory("--spare-worker", log=tmp_path / "log", why="it ends while its worker restarts")
    pids, process = server.worker_pids(), server.process
    os.kill(pids[0], signal.SIGKILL)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: "draining" in (tmp_path / "log").read_text() or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, 128 + signal.SIGTERM)
    wait_for(lambda: not any(map(alive, pids)))
