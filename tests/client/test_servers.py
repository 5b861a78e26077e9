"""Clients of several servers, of which they use one at a time."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import grpc
import pytest
from client.conftest import default_info, serving
from client.stream_server import StreamServer
from client_parts import transport_of
from rows import rows

import shardcall as sc
from shardcall._src.rpc import transport
from shardcall._src.rpc.retries import is_out_of_service
from shardcall._src.rpc.servers import ServerEndpoint, ServerList
from shardcall_core.access.token import Token


class Channel(SimpleNamespace):
    """A channel whose methods return the name of its server."""

    def unary_unary(self, path, **_):
        method = SimpleNamespace(future=lambda request: (self.name, path, request, "later"))
        return type("Method", (), {"__call__": lambda _, request: (self.name, path, request), **vars(method)})()

    def close(self):
        self.is_closed = True


def servers_of(*names, current=0):
    channels = [Channel(name=name, is_closed=False) for name in names]
    servers = [ServerEndpoint(one.name, lambda one=one: one, Token(one.name)) for one in channels]
    return ServerList(servers, current), channels


def test_a_method_goes_to_the_current_server():
    servers, channels = servers_of("a", "b", "c", current=1)
    channel = servers.open_channel()
    method = channel.unary_unary("/Execute", request_serializer=None)
    assert method(1) == ("b", "/Execute", 1)
    servers.leave(1)
    assert (servers.address, servers.token.show(1)) == ("c", "c")
    assert method(2) == ("c", "/Execute", 2)
    servers.leave(2)
    assert method(3) == ("a", "/Execute", 3)
    channel.close()
    assert all(channel.is_closed for channel in channels)


def test_an_attempt_stays_with_its_server_that_another_thread_leaves():
    servers, _ = servers_of("a", "b")
    method = servers.open_channel().unary_unary("/Execute", request_serializer=None)
    with servers.attempt() as index:
        thread = threading.Thread(target=servers.leave, args=[index])
        thread.start()
        thread.join()
        assert (servers.address, servers.token.show(1), method(1)[0]) == ("a", "a", "a")
    assert (servers.address, servers.token.show(1), method(1)[0]) == ("b", "b", "b")


def test_threads_that_leave_one_server_leave_no_other():
    servers, _ = servers_of("a", "b", "c")
    for _ in range(3):
        servers.leave(0)
    assert servers.address == "b"
    servers, (channel,) = servers_of("a")  # one server has a plain channel
    servers.leave(0)
    assert servers.address == "a"
    assert servers.open_channel() is channel


@rows(
    ("status", "reason", "expected"),
    [
        (grpc.StatusCode.UNAVAILABLE, "", True),
        (grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING", True),
        (grpc.StatusCode.UNAVAILABLE, "MESH_RESTARTED", False),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "SERVER_BUSY", False),
        (grpc.StatusCode.INTERNAL, "", False),
    ],
)
def test_a_server_that_drains_or_is_gone_is_left(status, reason, expected):
    assert is_out_of_service(sc.ShardcallError("", status=status, reason=reason)) is expected


@rows("address", [[], (), {"a:1"}, 7, ["a:1", 7], ["a:1", "b"], [["a:1"]]])
def test_other_values_are_no_lists_of_addresses(address):
    with pytest.raises(sc.InvalidRequestError, match="is no address of a server"):
        sc.connect(address)


def test_the_error_of_a_list_names_every_server():
    with pytest.raises(sc.ServerUnavailableError, match=r"none of 2 servers is ready: .*127.0.0.1:1\b.*127.0.0.1:2\b"):
        sc.connect(["127.0.0.1:1", "127.0.0.1:2"], connect_timeout=0.5)


@pytest.fixture
def two():
    """Two servers."""
    with ExitStack() as stack:
        yield [stack.enter_context(serving()) for _ in range(2)]


def slow(delay_s, info=default_info):
    """The description of a server that takes its time."""

    return lambda request, context: time.sleep(delay_s) or info()


def addresses(servers):
    return [server.address for server in servers]


@pytest.fixture
def draining(two, abort):
    """A client of two servers, of which the first drains from the first call on."""
    with sc.connect(addresses(two), call_stream=False) as client:
        two[0].execute = lambda _, context: abort(context, grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
        yield client


def test_a_late_description_of_a_server_that_was_left_is_not_used(two):
    _, second = two
    asked, answers = threading.Event(), threading.Event()

    def describe(request, context):
        asked.set()
        assert answers.wait(60)
        info = default_info()
        info.platform = "gpu"
        return info

    with sc.connect(addresses(two), call_stream=False) as client:
        second.info = describe
        servers = transport_of(client).servers
        servers.leave(0)
        late = threading.Thread(target=client.call, args=["echo", 1.0])
        late.start()
        assert asked.wait(60)
        servers.leave(1)
        assert client.call("echo", 2.0).array == 2.0
        answers.set()
        late.join()
        assert [len(server.requests) for server in two] == [1, 1]
        assert client._info.platform == "cpu"
        asked.clear()
        assert client.call("echo", 3.0).array == 3.0
        servers.leave(0)
        assert client.call("echo", 4.0).array == 4.0
        assert asked.is_set(), "the second server is described when it is used again"
        assert client._info.platform == "gpu"


def test_the_time_for_a_description_is_a_part_of_the_timeout(draining, two):
    two[1].info = slow(0.3)
    assert draining.call("echo", 1.0, timeout=60).array == 1.0
    (metadata,) = two[1].metadata
    assert float(metadata["shardcall-timeout"]) < 59.75


def test_a_description_takes_no_longer_than_the_timeout(draining, two):
    refused = threading.Event()
    two[1].info = lambda request, context: refused.wait(60) and default_info()
    with pytest.raises(sc.DeadlineExceededError):
        draining.call("echo", 1.0, timeout=0.3)
    refused.set()
    assert two[1].requests == []


@pytest.fixture
def streaming(two, info):
    """Two servers with call streams, of which the first drains from the first call on."""
    both = [StreamServer(), StreamServer()]
    for server, streams in zip(two, both, strict=True):
        server.info, server.call_stream = slow(0.0, lambda: info), streams.serve
    both[0].on_call = lambda call: call.stream.end(grpc.StatusCode.UNAVAILABLE, "SERVER_DRAINING")
    return two


def test_a_call_stream_waits_for_a_description_as_long_as_its_calls(streaming, info, monkeypatch):
    monkeypatch.setattr(transport, "_DESCRIPTION_TIMEOUT_S", 0.1)
    with sc.connect(addresses(streaming)) as client:
        streaming[1].info = slow(0.4, lambda: info)
        assert (client.call("echo", 1.0, timeout=60).array, client.address) == (1.0, streaming[1].address)


def test_a_token_that_is_refused_at_a_description_is_renewed(streaming, info, abort, sessions):
    asked = []

    def describe(request, context):
        asked.append(dict(context.invocation_metadata())["authorization"])
        if len(set(asked)) == 1:
            abort(context, grpc.StatusCode.UNAUTHENTICATED, "TOKEN_REQUIRED")
        return info

    with sc.connect(addresses(streaming)) as client:
        streaming[1].info = describe
        assert client.call("echo", 1.0, timeout=60).array == 1.0
    assert len(asked) == 2


def test_a_call_that_comes_during_a_description_has_a_later_end(streaming, info, monkeypatch):
    monkeypatch.setattr(transport, "_DESCRIPTION_TIMEOUT_S", 0.1)
    asked = threading.Event()

    def describe(request, context):
        asked.set()
        time.sleep(2.0)
        return info

    with sc.connect(addresses(streaming)) as client, ThreadPoolExecutor(2) as pool:
        streaming[1].info = describe
        early = pool.submit(client.call, "echo", 1.0, timeout=1.0)
        assert asked.wait(60)
        later = pool.submit(client.call, "echo", 1.0, timeout=60.0)
        assert isinstance(early.exception(60), sc.DeadlineExceededError)
        assert later.result(60).array == 1.0
