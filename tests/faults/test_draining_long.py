"""Second signals, signals that another thread takes, and calls without end while a server drains."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from end_to_end.processes import X, wait_for
from faults.test_draining import ADMITTING, CLIENTS, _ask_while_it_serves, connected, in_flight, is_refused
from servers import alive

import shardcall as sc

pytestmark = pytest.mark.long

AT_ONCE = 200


def test_a_second_signal_ends_two_hundred_calls_at_once(server_factory):
    server = server_factory(*ADMITTING, why="it drains")
    with connected(server.address, CLIENTS, retries=False) as clients, ThreadPoolExecutor(AT_ONCE) as pool:
        (worker,) = server.worker_pids()[:1]
        with in_flight(server, clients, pool, AT_ONCE) as calls:
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: is_refused(clients[0]))
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 128 + signal.SIGTERM
            wait_for(lambda: not alive(worker))
        for call in calls:
            with pytest.raises(sc.ServerUnavailableError):
                call.result(60)


def test_signals_that_another_thread_takes_count_too(server_factory):
    """Linux gives a signal to any thread; Python's handler runs in the main one, which nothing wakes then."""

    def signal_another_thread() -> None:
        pid = server.process.pid
        other = sorted(map(int, os.listdir(f"/proc/{pid}/task")))[1]  # there since the start
        assert ctypes.CDLL(None).tgkill(pid, other, signal.SIGTERM) == 0

    server = server_factory(devices=1, why="it drains")
    with sc.connect(server.address, retries=False) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        os.kill(server.worker_pids()[0], signal.SIGSTOP)
        last = pool.submit(client.diff, X, axis=0, timeout=120)
        wait_for(lambda: client.usage().calls == 1)
        signal_another_thread()
        wait_for(lambda: is_refused(client))
        signal_another_thread()
        assert server.process.wait(60) == 128 + signal.SIGTERM
        with pytest.raises(sc.ServerUnavailableError):
            last.result(60)


def test_new_calls_are_refused_while_the_server_drains(server_factory):
    """Callers that never stop until the server is gone: every outcome is an answer or UNAVAILABLE."""
    met: Counter[str] = Counter()
    for _ in range(20):
        server = server_factory(devices=1, why="it drains")
        with (
            connected(server.address, CLIENTS, retries=False) as clients,
            ThreadPoolExecutor(2 * CLIENTS + 2) as pool,
            ExitStack() as stack,
        ):
            clients[0].diff(X, axis=0)
            (worker,) = server.worker_pids()
            os.kill(worker, signal.SIGSTOP)
            last = [pool.submit(client.diff, X, axis=0, timeout=120) for client in clients[:2]]
            wait_for(lambda clients=clients: clients[0].usage().calls == len(clients[:2]))
            refused = [threading.Event() for _ in range(2 * CLIENTS)]
            callers = [
                pool.submit(_ask_while_it_serves, clients[i % CLIENTS], event) for i, event in enumerate(refused)
            ]
            stack.callback(server.process.kill)  # whatever happens, callers that never stop must not be waited for
            server.process.send_signal(signal.SIGTERM)
            assert all(event.wait(50) for event in refused)
            os.kill(worker, signal.SIGCONT)
            for one in last:
                np.testing.assert_array_equal(one.result(120).array, np.diff(X, axis=0))
            for caller in callers:
                met += caller.result(120)
            assert server.process.wait(120) == 0
    assert set(met) <= {"answered", "SERVER_DRAINING", "UNAVAILABLE"}
