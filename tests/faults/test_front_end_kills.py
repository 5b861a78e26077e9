"""Front ends killed under their clients: clients find the next server at the same address, and get no wrong results."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from end_to_end.processes import X, wait_for
from faults.restarting import RestartingServer
from servers import alive

import shardcall as sc

pytestmark = pytest.mark.long

CLIENTS = 4
LARGE = np.random.default_rng(1).standard_normal((512, 512))


def shared_memory_names() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir()}


@pytest.fixture(scope="module")
def restarting_for_all() -> Iterator[RestartingServer]:
    with RestartingServer("--spare-worker", devices=2) as server:
        yield server


@pytest.fixture
def restarting(restarting_for_all: RestartingServer) -> RestartingServer:
    """A server that runs, whichever test has killed one before."""
    if restarting_for_all.running.process.poll() is not None:
        restarting_for_all.start()
    return restarting_for_all


def test_clients_find_the_next_server_at_the_address_and_nothing_is_mistaken(restarting, figure):
    """Half of the clients use shared memory, half a call stream, and one retries nothing."""
    before, kills = shared_memory_names(), 20
    ends: Counter[str] = Counter()
    first_answers: list[float] = []
    with ExitStack() as stack, ThreadPoolExecutor(2 * CLIENTS) as pool:
        clients = [
            stack.enter_context(
                sc.connect(
                    restarting.address,
                    shared_memory=bool(i % 2),
                    call_stream=bool(i // 2 % 2),
                    retries=bool(i),
                    connect_timeout=60,
                )
            )
            for i in range(CLIENTS)
        ]
        for number in range(kills):
            kept = [client.put(LARGE + number) for client in clients]
            back = threading.Event()
            calls = [pool.submit(_call_repeatedly, client, back) for client in clients]
            children = restarting.children()
            restarting.kill()
            wait_for(lambda children=children: not any(alive(pid) for pid in children))
            restarting.start()
            back.set()
            for call in calls:
                ends[_end(call)] += 1
            for client, array in zip(clients, kept, strict=True):
                began = time.monotonic()
                _answers_soon(client)
                first_answers.append(time.monotonic() - began)
                with pytest.raises(sc.ArrayLostError):
                    array.get()
                with pytest.raises(sc.ArrayLostError):
                    client.diff(array, axis=0)
                assert client.list() == []
    assert set(ends) <= {"failed", "repeated"}
    assert ends["failed"]
    assert shared_memory_names() <= before
    figure(
        f"{kills} kills under {CLIENTS} clients: 0 wrong, every old array lost and none mistaken; "
        f"calls in flight: {dict(ends)}; first answer of a client after {median(first_answers):.2f} s "
        f"(worst {max(first_answers):.2f})"
    )


def _call_repeatedly(client: sc.Client, back: threading.Event) -> None:
    """Calls until one fails or the next server is there: every answer must be right, from either server."""
    while not back.is_set():
        np.testing.assert_array_equal(client.diff(LARGE, axis=0).array, np.diff(LARGE, axis=0))


def _end(call: Future[None]) -> str:
    """The outcome of the call in flight: "repeated" by the client, "failed" as it should, or another error."""
    error = call.exception(120)
    return {type(None): "repeated", sc.ServerUnavailableError: "failed"}.get(type(error), repr(error))


def _answers_soon(client: sc.Client) -> None:
    """Calls until the client has found the server; without retries that takes a call or more."""

    def answers() -> bool:
        try:
            np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))
        except sc.ServerUnavailableError:
            return False
        return True

    wait_for(answers)


def test_a_front_end_killed_in_a_call_takes_worker_and_spare_with_it(restarting):
    before = shared_memory_names()
    with sc.connect(restarting.address, connect_timeout=60) as client, ThreadPoolExecutor(1) as pool:
        client.diff(LARGE, axis=0)
        wait_for(lambda: client.usage().mesh.spare_ready)
        children = restarting.children()
        assert len(children) == 2
        for pid in children:  # stopped, they cannot see the end of their front end
            restarting.stop(pid)
        call = pool.submit(client.diff, LARGE, axis=0, timeout=60)
        restarting.kill()
        wait_for(lambda: not any(alive(pid) for pid in children))
        with pytest.raises(sc.ServerUnavailableError):
            call.result(120)
    assert shared_memory_names() <= before
