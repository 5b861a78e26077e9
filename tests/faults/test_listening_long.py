"""Listening addresses of a server with a metrics port and a Unix socket, and without segments."""

from __future__ import annotations

import pytest
from faults.test_listening import check_sockets

pytestmark = pytest.mark.long


def test_only_what_was_declared_listens(server_factory, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = ("--metrics-port", "0", "--no-segments", "--unix-socket", "own.sock")
    check_sockets(server_factory(*flags, devices=1, why="it listens elsewhere"), *flags)
