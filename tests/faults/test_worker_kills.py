"""Workers that are killed: their replacement, its delay, and that every call gets a right answer or an error."""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
import pytest
from end_to_end.processes import wait_for
from faults.long_programs import works
from servers import ServerProcess, alive, holds_nothing, start_server

import shardcall as sc

pytestmark = pytest.mark.long

CLIENTS, KILLS = 20, 50
TIMEOUT_S = 120.0


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


@dataclass
class Callers:
    """Clients that call continuously, and the outcomes of their calls.

    Attributes:
        address: the server's.
        right: when each call began that was answered right, and when it ended.
        error_times: when a call failed because the mesh restarted.
        wrong: descriptions of wrong answers.
    """

    address: str
    right: list[tuple[float, float]] = field(default_factory=list)
    error_times: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def call_repeatedly(self, number: int) -> None:
        x = np.random.default_rng(number).standard_normal((64, 16))
        expected = np.diff(x, axis=0)
        with sc.connect(self.address, call_stream=bool(number % 2)) as client:
            while not self.stopping.is_set():
                began = time.monotonic()
                try:
                    result = client.diff(x, axis=0, timeout=TIMEOUT_S).array
                except sc.MeshRestartedError:
                    self.error_times.append(time.monotonic())
                except sc.ShardcallError as error:
                    self.wrong.append(repr(error))
                else:
                    self.right.append((began, time.monotonic()))
                    if not np.array_equal(result, expected):
                        self.wrong.append(f"{number}: {result}")

    def next_right(self, since: float) -> float | None:
        """The seconds from a moment to the first right answer to a call that began after it."""
        return min((end - since for begin, end in self.right.copy() if begin >= since), default=None)


def test_workers_killed_under_load_cost_no_right_answer(server_factory, figure):
    """Each time the spare takes over, and another stands by; a signal ends them all."""
    server = server_factory("--spare-worker", why="its worker is killed")
    before = set(os.listdir("/dev/shm"))
    callers = Callers(server.address)
    killed: list[tuple[float, int]] = []
    with sc.connect(server.address) as client, ThreadPoolExecutor(CLIENTS) as pool, ExitStack() as stack:
        works(client)
        worker, spare = worker_and_spare(server, client)
        calls = [pool.submit(callers.call_repeatedly, number) for number in range(CLIENTS)]
        stack.callback(callers.stopping.set)
        wait_for(lambda: len(callers.right) > CLIENTS)
        for number in range(KILLS):
            killed.append((time.monotonic(), worker))
            os.kill(worker, signal.SIGKILL)
            wait_for(lambda: callers.next_right(killed[-1][0]) is not None)
            successor = spare
            if number == KILLS - 1:
                callers.stopping.set()  # the next spare starts sooner without them
            worker, spare = worker_and_spare(server, client)
            assert worker == successor
        for call in calls:
            call.result(TIMEOUT_S + 60)
        assert callers.wrong == []
        assert client.usage().mesh.restarts >= len(killed)
        wait_for(lambda: holds_nothing(client))
        pids = {*server.worker_pids(), *(pid for _, pid in killed)}
        # Ended processes that were not waited for would still be among the children.
        assert not {pid for _, pid in killed} & set(server.worker_pids())
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(120) == 0
    wait_for(lambda: not any(map(alive, pids)))
    assert {name for name in set(os.listdir("/dev/shm")) - before if "shardcall" in name} == set()
    figure(_summary(callers, [moment for moment, _ in killed]))


def _summary(callers: Callers, killed: list[float]) -> str:
    delays = [moment - max(kill for kill in killed if kill <= moment) for moment in callers.error_times]
    again = [taken for kill in killed if (taken := callers.next_right(kill)) is not None]
    worst = max(end - begin for begin, end in callers.right)
    return (
        f"{len(killed)} kills, {len(callers.right)} right answers, {len(delays)} calls failed after "
        f"{_median(delays):.3f} s, {max(delays, default=0):.3f} s at most; next right answer "
        f"after {_median(again):.2f} s, {max(again):.2f} s at most; the longest call took {worst:.2f} s"
    )


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def test_a_second_signal_during_a_restart_ends_at_once(tmp_path):
    process = start_server("--devices", "8", "--spare-worker", log=tmp_path / "log")
    try:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        server = ServerProcess(process, "")
        pids = server.worker_pids()
        os.kill(pids[0], signal.SIGKILL)
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: "draining" in (tmp_path / "log").read_text() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, 128 + signal.SIGTERM)
        wait_for(lambda: not any(map(alive, pids)))
    finally:
        process.kill()
        process.communicate()
