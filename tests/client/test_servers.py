"""Clients of several servers, of which they use one at a time."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import grpc
import pytest
from rows import rows

import shardcall as sc
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
    servers = [
        ServerEndpoint(channel.name, lambda channel=channel: channel, Token(channel.name)) for channel in channels
    ]
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


def test_one_server_has_a_plain_channel():
    servers, (channel,) = servers_of("a")
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
