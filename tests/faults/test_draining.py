"""SIGTERM under load: whoever was let in is answered, whoever comes is told why not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from conftest import ServerProcess
from end_to_end.processes import X, alive, until

import shardcall as sc

AT_ONCE = 200
CLIENTS = 4
ADMITTING = ("--max-concurrent-calls", "256", "--max-concurrent-calls-per-client", "256")
WORKING = np.ones((256, 256))


@contextmanager
def connected(address: str, count: int, **options: bool) -> Iterator[list[sc.Client]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(sc.connect(address, shared_memory=False, connect_timeout=60, **options))
            for _ in range(count)
        ]


def expected(factor: float) -> np.ndarray:
    return (WORKING * factor) @ WORKING


@contextmanager
def in_flight(
    server: ServerProcess, clients: list[sc.Client], pool: ThreadPoolExecutor
) -> Iterator[list[Future[np.ndarray]]]:
    """Calls that all wait for a worker which is stopped; when the body ends it goes on."""
    (worker,) = server.worker_pids()

    def product(number: int) -> np.ndarray:
        return clients[number % len(clients)].matmul(WORKING * number, WORKING, timeout=120).array

    assert product(1)[0, 0] == 256.0  # compiled
    os.kill(worker, signal.SIGSTOP)
    try:
        calls = [pool.submit(product, number) for number in range(AT_ONCE)]
        until(lambda: clients[0].usage().bytes_in_use >= AT_ONCE * WORKING.nbytes)
        yield calls
    finally:
        os.kill(worker, signal.SIGCONT)


def is_refused(client: sc.Client) -> bool:
    try:
        client.kernels()
    except sc.ServerUnavailableError:
        return True
    return False


def test_two_hundred_calls_in_flight_are_answered(own_server, figure):
    server = own_server(*ADMITTING)
    with connected(server.address, CLIENTS, retries=False) as clients, ThreadPoolExecutor(AT_ONCE) as pool:
        with in_flight(server, clients, pool) as calls:
            server.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            until(lambda: is_refused(clients[0]))
        for number, call in enumerate(calls):
            np.testing.assert_array_equal(call.result(120), expected(number))
        assert server.process.wait(120) == 0
        figure(f"{AT_ONCE} of {AT_ONCE} calls answered, exit status 0 after {time.monotonic() - began:.1f} s")


def test_a_second_signal_ends_two_hundred_calls_at_once(own_server, figure):
    server = own_server(*ADMITTING)
    with connected(server.address, CLIENTS, retries=False) as clients, ThreadPoolExecutor(AT_ONCE) as pool:
        (worker,) = server.worker_pids()[:1]
        with in_flight(server, clients, pool) as calls:
            server.process.send_signal(signal.SIGTERM)
            until(lambda: is_refused(clients[0]))
            server.process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert server.process.wait(60) == 128 + signal.SIGTERM
            figure(f"ended {time.monotonic() - began:.2f} s after the second signal")
            until(lambda: not alive(worker))
        for call in calls:
            with pytest.raises(sc.ServerUnavailableError):
                call.result(60)


def test_new_calls_are_told_that_the_server_drains(own_server, times, figure):
    """Eight clients that never stop calling: what each of them meets is an answer or UNAVAILABLE."""
    met: Counter[str] = Counter()
    for _ in range(times(20)):
        server = own_server(*ADMITTING, devices=1)
        ending = threading.Event()
        with connected(server.address, 8, retries=False) as clients, ThreadPoolExecutor(32) as pool:
            clients[0].diff(X, axis=0)
            callers = [pool.submit(_call_until_it_is_gone, clients[i % 8], ending) for i in range(32)]
            ending.set()
            server.process.send_signal(signal.SIGTERM)
            for caller in callers:
                met += caller.result(120)
            assert server.process.wait(120) == 0
    assert set(met) <= {"answered", "SERVER_DRAINING", "UNAVAILABLE"}
    assert met["SERVER_DRAINING"]
    figure(", ".join(f"{count} {what}" for what, count in sorted(met.items())))


def _call_until_it_is_gone(client: sc.Client, ending: threading.Event) -> Counter[str]:
    """Calls without end; returns what became of the calls since the signal."""
    met: Counter[str] = Counter()
    ending.wait(60)
    while True:
        try:
            np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))
            met["answered"] += 1
        except sc.ShardcallError as error:
            met[error.reason or (error.status.name if error.status else "nothing")] += 1
            if not error.reason:
                return met
