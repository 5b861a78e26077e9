"""Second signals, and signals that another thread takes, while a server drains."""

import ctypes
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from end_to_end.processes import X, wait_for
from faults.test_draining import ADMITTING, CLIENTS, connected, in_flight, is_refused
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
