"""Who may come through the door by which a worker gets a link of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shardcall_server.frontend.hosts import door as module
from shardcall_server.frontend.hosts.door import Door


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


@pytest.fixture
def child() -> Iterator[int]:
    """A child process of the test's, as a worker is one of its agent's."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def come(door: Door, ticket: bytes) -> socket.socket:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    agent.connect(door.path)
    agent.sendall(ticket)
    return agent


def test_the_parent_of_the_worker_gets_in(door, child):
    with come(door, door.ticket) as agent, door.open(child) as link:
        agent.sendall(b"x")
        assert link.recv(1) == b"x"


def test_another_than_the_parent_and_another_ticket_do_not(door, child):
    with come(door, door.ticket), pytest.raises(PermissionError):
        door.open(os.getpid())
    with come(door, bytes(len(door.ticket))), pytest.raises(PermissionError):
        door.open(child)


def test_nor_does_one_that_cannot_be_seen_from_here(door, monkeypatch):
    """From another namespace of processes everybody's number is 0, and that of nobody's parent is too."""
    monkeypatch.setattr(module, "peer_of", lambda connection: (0, os.geteuid()))
    with come(door, door.ticket), pytest.raises(PermissionError):
        door.open(2**22 + 1)
