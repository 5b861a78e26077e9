"""The metrics' own port: every client that reaches it is served, and slow clients hold no threads of the front end."""

from __future__ import annotations

import functools
import http.client
import socket
from contextlib import ExitStack, closing
from http.server import ThreadingHTTPServer
from socketserver import BaseServer
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter
from rows import rows

from shardcall_server.frontend.observability.metrics_server import PATH, MetricsServer

_CONNECTIONS = 20  # more than are served at once


@pytest.fixture(autouse=True)
def _closed_without_delay(monkeypatch):
    """A server looks every half second whether it is to close."""
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", functools.partialmethod(BaseServer.serve_forever, 0.01))


def test_silent_connections_do_not_block_requests():
    registry = CollectorRegistry()
    Counter("asked", "Questions.", registry=registry)
    with closing(MetricsServer("127.0.0.1", 0, registry, timeout_s=600.0)) as server, ExitStack() as stack:
        host, _, port = server.address.rpartition(":")
        silent = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30)) for _ in range(_CONNECTIONS)
        ]
        with urlopen(f"http://{server.address}{PATH}", timeout=30) as answer:
            assert b"asked_total" in answer.read()
        assert [one.recv(1) for one in silent[: _CONNECTIONS - 15]] == [b""] * (_CONNECTIONS - 15)  # hung up on
    with closing(MetricsServer("127.0.0.1", 0, registry)) as server:
        for _ in range(_CONNECTIONS):  # a slot is free again with its connection
            with urlopen(f"http://{server.address}{PATH}", timeout=30) as answer:
                assert b"asked_total" in answer.read()


def test_a_request_that_does_not_come_to_an_end_is_ended():
    with closing(MetricsServer("127.0.0.1", 0, CollectorRegistry(), timeout_s=0.2)) as server:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as slow:
            slow.sendall(b"GET /metrics HT")
            assert slow.recv(1) == b""


@rows(
    ("listens", "asked", "status"),
    [
        ("127.0.0.1", "localhost:9470", 200),
        ("127.0.0.1", "127.0.0.1", 200),
        ("127.0.0.1", "[::1]:9470", 200),
        ("127.0.0.1", "rebound.example.org:9470", 421),
        ("127.0.0.1", "", 421),
        ("127.0.0.1", "[", 421),
        ("0.0.0.0", "server.example.org:9470", 200),
    ],
)
def test_on_loopback_metrics_are_served_by_loopbacks_names_only(listens, asked, status):
    with closing(MetricsServer(listens, 0, CollectorRegistry())) as server:
        connection = http.client.HTTPConnection("127.0.0.1", int(server.address.rpartition(":")[2]), timeout=30)
        with closing(connection):
            connection.request("GET", PATH, headers={"Host": asked})
            assert connection.getresponse().status == status
