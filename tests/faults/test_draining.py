"""SIGTERM under load: admitted calls are answered, and new calls are refused with a reason."""

import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
from end_to_end.processes import stopped, wait_for
from servers import ServerProcess

import shardcall as sc
from shardcall._src.memory.segment import open_segment

AT_ONCE = 50
CLIENTS = 4
ADMITTING = (
    *("--max-concurrent-calls", "256", "--max-concurrent-calls-per-client", "256"),
    *("--max-queued-calls-per-client", "256"),
)
WORKING = np.ones((32, 32))


@contextmanager
def connected(address: str, count: int, **options: bool) -> Iterator[list[sc.Client]]:
    """Clients of which every second one has a call stream; the others send their small calls as unary RPCs."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                sc.connect(address, shared_memory=False, call_stream=bool(i % 2), connect_timeout=60, **options)
            )
            for i in range(count)
        ]


def expected(factor: float) -> np.ndarray:
    return (WORKING * factor) @ WORKING


@contextmanager
def in_flight(
    server: ServerProcess, clients: list[sc.Client], pool: ThreadPoolExecutor, count: int
) -> Iterator[list[Future[np.ndarray]]]:
    """Calls that all wait for a stopped worker, which continues when the body ends."""

    def product(number: int) -> np.ndarray:
        return clients[number % len(clients)].matmul(WORKING * number, WORKING, timeout=120).array

    assert product(1)[0, 0] == 32.0  # compiled
    with stopped(server):
        calls = [pool.submit(product, number) for number in range(count)]
        wait_for(lambda: clients[0].usage().calls == count)
        yield calls


def is_refused(client: sc.Client) -> bool:
    try:
        client.kernels()
    except sc.ServerUnavailableError:
        return True
    return False


def test_calls_in_flight_are_answered_and_new_ones_refused(server_factory, monkeypatch):
    """The signal comes while another call has its segment opened, which is answered too; results are read after it."""
    server = server_factory(*ADMITTING, devices=1, why="it drains")
    x = np.arange(1 << 20, dtype=np.float64).reshape(-1, 2)

    def open_and_signal(*arguments):
        segment = open_segment(*arguments)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: is_refused(clients[0]))
        return segment

    holder = sc.connect(server.address, retries=False)  # which opens segments without a signal
    monkeypatch.setattr("shardcall._src.transfer.shared_memory_client.open_segment", open_and_signal)
    refused = [threading.Event() for _ in range(2 * CLIENTS)]
    with (
        connected(server.address, CLIENTS, retries=False) as clients,
        sc.connect(server.address, retries=False) as near,
        holder,
        ThreadPoolExecutor(AT_ONCE + 1 + len(refused)) as pool,
        ExitStack() as stack,
    ):
        stack.callback(server.process.kill)  # whatever happens, callers that never stop must not be waited for
        loop, starts = holder.jit(lambda a: a + 1.0), [holder.put(start) for start in (x, WORKING)]
        for start in starts:
            loop.repeat(start, times=3).get()  # compiled
        with in_flight(server, clients, pool, AT_ONCE) as calls:
            loops = [loop.repeat(start, times=3) for start in starts]
            wait_for(lambda: clients[0].usage().calls == AT_ONCE + len(loops))
            callers = [
                pool.submit(_ask_while_it_serves, clients[i % CLIENTS], event) for i, event in enumerate(refused)
            ]
            opening = pool.submit(near.diff, x, axis=0, timeout=120)
            assert all(event.wait(50) for event in refused)
        for number, call in enumerate(calls):
            np.testing.assert_array_equal(call.result(120), expected(number))
        np.testing.assert_array_equal(opening.result(120).array, np.diff(x, axis=0))
        for result, start in zip(loops, (x, WORKING), strict=True):
            np.testing.assert_array_equal(result.get(), start + 3.0)
        met = sum((caller.result(120) for caller in callers), Counter[str]())
        assert set(met) <= {"answered", "SERVER_DRAINING", "UNAVAILABLE"}
        assert server.process.wait(120) == 0


def _ask_while_it_serves(client: sc.Client, refused: threading.Event) -> Counter[str]:
    """Calls until the server is gone; counts the outcomes, and sets the event at the first refusal by the drain."""
    met: Counter[str] = Counter()
    while True:
        try:
            client.kernels()
            met["answered"] += 1
        except sc.ShardcallError as error:
            met[error.reason or (error.status.name if error.status else "nothing")] += 1
            if not error.reason:
                return met
            refused.set()
