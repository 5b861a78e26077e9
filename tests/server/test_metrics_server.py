"""The metrics' own port: whoever reaches it may ask, and nobody may hold the front end's threads by asking slowly."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing
from urllib.request import urlopen

from prometheus_client import CollectorRegistry, Counter

from shardcall_server.frontend import metrics_server
from shardcall_server.frontend.metrics_server import PATH, MetricsServer

_CONNECTIONS = 20  # more than are served at once


def test_connections_that_say_nothing_hold_few_threads(monkeypatch):
    monkeypatch.setattr(metrics_server._Handler, "timeout", 600.0)
    registry = CollectorRegistry()
    Counter("asked", "Questions.", registry=registry)
    with closing(MetricsServer("127.0.0.1", 0, registry)) as server, ExitStack() as stack:
        host, _, port = server.address.rpartition(":")
        silent = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=30)) for _ in range(_CONNECTIONS)
        ]
        assert silent[-1].recv(1) == b""  # hung up on
    with closing(MetricsServer("127.0.0.1", 0, registry)) as server:
        for _ in range(_CONNECTIONS):  # a place comes back with its connection
            with urlopen(f"http://{server.address}{PATH}", timeout=30) as answer:
                assert b"asked_total" in answer.read()
