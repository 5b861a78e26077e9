"""A port that another process takes after its server was killed, and the data that clients send there."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import grpc
import pytest
from end_to_end.processes import wait_for
from faults.restarting import RestartingServer

import shardcall as sc
from shardcall_core.wire import token_file

pytestmark = pytest.mark.long

CLIENTS = 12


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


def test_who_takes_the_port_gets_no_token_that_is_worth_anything():
    """Half of the clients call when the server is killed, the others for the first time afterwards."""
    tokens = [entry.token for entry in token_file.read_both(os.environ[token_file.FILE_VARIABLE])]
    end = threading.Event()
    with ExitStack() as stack, RestartingServer(devices=1) as server, ThreadPoolExecutor(CLIENTS) as pool:
        clients = [
            stack.enter_context(sc.connect(server.address, connect_timeout=60, shared_memory=False))
            for _ in range(CLIENTS)
        ]
        calling = [pool.submit(_ask_repeatedly, end, client) for client in clients[::2]]
        server.kill()
        with impostor(server.address) as brought:
            calling += [pool.submit(_ask_repeatedly, end, client) for client in clients[1::2]]
            wait_for(lambda: brought.total() >= 2 * CLIENTS)
        server.start()
        end.set()
        for ended in calling:
            ended.result()
        for client in clients:
            assert client.diff([1.0, 4.0], timeout=60).array.tolist() == [3.0]
        for header in brought:
            assert not _opens(server.address, header)
    assert not any(token in header for token in tokens for header in brought)


def _opens(address: str, header: str) -> bool:
    """Returns whether a server accepts this token."""
    with grpc.insecure_channel(address) as channel:
        ask = channel.unary_unary("/shardcall.v1.ServerInfoService/GetServerInfo")
        asked = ask.future(b"", metadata=(("authorization", header),), timeout=60)
        assert asked.code() in {grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED}, asked
        return asked.code() is grpc.StatusCode.OK


def _ask_repeatedly(end: threading.Event, client: sc.Client) -> None:
    while not end.is_set():
        with suppress(sc.ServerUnavailableError):
            client.server_info(timeout=60)
