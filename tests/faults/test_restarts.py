"""Servers killed or drained under clients, which find the next one; who takes an address first gets no token."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest
from client_parts import lease_of
from end_to_end.processes import X, wait_for
from faults.callers import Callers, small_diff
from faults.restarting import RestartingServer
from faults.token_servers import is_accepted
from servers import alive

import shardcall as sc
from shardcall_core.wire import token_file

pytestmark = pytest.mark.long

CLIENTS = 4
ASKING = 12
LARGE = np.random.default_rng(1).standard_normal((512, 512))


def shared_memory_names() -> set[str]:
    return {entry.name for entry in Path("/dev/shm").iterdir()}


@pytest.fixture(scope="module")
def restarting_for_all() -> Iterator[RestartingServer]:
    with RestartingServer("--spare-worker", devices=2) as server:
        yield server


@pytest.fixture
def restarting(restarting_for_all: RestartingServer) -> Iterator[RestartingServer]:
    """A server that runs, whichever test has killed one before; nothing is left in shared memory."""
    if restarting_for_all.running.process.poll() is not None:
        restarting_for_all.start()
    before = shared_memory_names()
    yield restarting_for_all
    assert shared_memory_names() <= before


def test_clients_find_the_next_server_at_the_address_and_nothing_is_mistaken(restarting, figure):
    """Half of the clients use shared memory, half a call stream, and one retries nothing."""
    kills, ends = 20, Counter[type]()
    with ExitStack() as stack, ThreadPoolExecutor(CLIENTS) as pool:
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
            children = restarting.running.worker_pids()
            restarting.kill()
            wait_for(lambda children=children: not any(map(alive, children)))
            restarting.start()
            back.set()
            ends.update(type(call.exception(120)) for call in calls)
            for client, array in zip(clients, kept, strict=True):
                wait_for(lambda client=client: _answers(client))  # without retries it takes a call or more
                with pytest.raises(sc.ArrayLostError):
                    array.get()
                with pytest.raises(sc.ArrayLostError):
                    client.diff(array, axis=0)
                assert client.list() == []
    assert set(ends) <= {type(None), sc.ServerUnavailableError}
    assert ends[sc.ServerUnavailableError]
    figure(f"{kills} kills under {CLIENTS} clients: 0 wrong, every old array lost and none mistaken; {dict(ends)}")


def _call_repeatedly(client: sc.Client, back: threading.Event) -> None:
    """Calls until one fails or the next server is there: every answer must be right, from either server."""
    while not back.is_set():
        np.testing.assert_array_equal(client.diff(LARGE, axis=0).array, np.diff(LARGE, axis=0))


def _answers(client: sc.Client) -> bool:
    with suppress(sc.ServerUnavailableError):
        return np.array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))
    return False


def test_a_front_end_killed_in_a_call_takes_worker_and_spare_with_it(restarting):
    with sc.connect(restarting.address, connect_timeout=60) as client, ThreadPoolExecutor(1) as pool:
        client.diff(LARGE, axis=0)
        wait_for(lambda: client.usage().mesh.spare_ready)
        children = restarting.running.worker_pids()
        assert len(children) == 2
        for pid in children:  # stopped, they cannot see the end of their front end
            os.kill(pid, signal.SIGSTOP)
        call = pool.submit(client.diff, LARGE, axis=0, timeout=60)
        restarting.kill()
        wait_for(lambda: not any(map(alive, children)))
        with pytest.raises(sc.ServerUnavailableError):
            call.result(120)


@contextmanager
def impostor(address: str) -> Iterator[Counter[str]]:
    """Listens at an address, refuses every call, and counts the credentials that they send."""
    brought: Counter[str] = Counter()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            brought[str(dict(details.invocation_metadata).get("authorization", ""))] += 1
            return grpc.unary_unary_rpc_method_handler(
                lambda _, context: context.abort(grpc.StatusCode.UNAVAILABLE, "no answer")
            )

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(address)
    server.start()
    try:
        yield brought
    finally:
        server.stop(0).wait()


def test_who_takes_the_port_gets_no_token_that_is_worth_anything(restarting):
    """Half of the clients call when the server is killed, the others for the first time afterwards."""
    tokens = [entry.token for entry in token_file.read_both(os.environ[token_file.FILE_VARIABLE])]
    end = threading.Event()
    with ExitStack() as stack, ThreadPoolExecutor(ASKING) as pool:
        clients = [
            stack.enter_context(sc.connect(restarting.address, connect_timeout=60, shared_memory=False))
            for _ in range(ASKING)
        ]
        calling = [pool.submit(_ask_repeatedly, end, client) for client in clients[::2]]
        restarting.kill()
        with impostor(restarting.address) as brought:
            calling += [pool.submit(_ask_repeatedly, end, client) for client in clients[1::2]]
            wait_for(lambda: brought.total() >= 2 * ASKING)
        restarting.start()
        end.set()
        for ended in calling:
            ended.result()
        for client in clients:
            assert client.diff([1.0, 4.0], timeout=60).array.tolist() == [3.0]
        for header in brought:
            assert not is_accepted(restarting.running, header.removeprefix("Bearer "))
    assert not any(token in header for token in tokens for header in brought)


def _ask_repeatedly(end: threading.Event, client: sc.Client) -> None:
    while not end.is_set():
        with suppress(sc.ServerUnavailableError):
            client.server_info(timeout=60)


CALLERS = 16
PAUSE_S = 0.02  # between the calls of a client, or a server that starts would have no processor


@pytest.fixture
def servers() -> Iterator[list[RestartingServer]]:
    limits = ("--lease-s", "20", "--max-call-s", "30")
    with ExitStack() as stack:
        yield [stack.enter_context(RestartingServer(*flags, devices=1)) for flags in ((), limits)]


def test_a_rolling_drain_of_two_servers_fails_no_call(servers):
    addresses = [server.address for server in servers]
    with Callers(frozenset()).calling(addresses, [small_diff] * CALLERS, PAUSE_S) as callers:
        for server in servers:
            wait_for(lambda address=server.address: len(callers.served(address)) == CALLERS)
            server.drain()
            server.start()
        returned = time.monotonic()
        wait_for(lambda: len(callers.served(addresses[0], returned)) == CALLERS)
    assert callers.wrong == []
    assert len(callers.served(addresses[1])) == CALLERS


def test_after_a_drain_calls_arrays_and_limits_are_those_of_the_next_server(servers):
    first, second = servers
    addresses = [first.address, second.address]
    # No server is at the first of these; the first that is ready is used.
    with (
        Callers(frozenset()).calling(addresses, [small_diff] * 4, PAUSE_S) as callers,
        sc.connect(["127.0.0.1:1", *addresses]) as client,
        sc.connect(second.address) as other,
    ):
        assert client.address == first.address
        before, h, dropped = client._info.limits, client.put(np.arange(4.0)), client.put(np.arange(4.0))
        first.drain()
        assert client.submit("diff", np.array([1.0, 4, 9])).get().tolist() == [3, 5]
        assert client.address == second.address
        described = client.server_info()
        assert client._info.limits == described.limits != before
        assert lease_of(client)._interval_s == described.limits.lease_seconds / 4 == 5
        g = client.put(np.arange(4.0))
        assert (g + 1).get().tolist() == [1, 2, 3, 4]
        assert other.diff(g).array.tolist() == [1, 1, 1]
        gone = rf"which is on the server at {first.address}, and this client has gone on to {second.address}; put it"
        for use in (h.get, partial(client.diff, h), partial(client.submit, "diff", h), partial(np.add, h, 1)):
            with pytest.raises(sc.ArrayLostError, match=gone) as caught:
                use()
            assert caught.value.reason == "ARRAY_LOST"
        dropped.delete()
        wait_for(lambda: len(callers.served(second.address)) == 4)
    assert callers.wrong == []
