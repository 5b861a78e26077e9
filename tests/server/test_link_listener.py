"""Access to the listener from which a worker gets a link of its own."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from shardcall_server.frontend.hosts import link_listener as module
from shardcall_server.frontend.hosts.link_listener import LinkListener


@pytest.fixture
def link_listener() -> Iterator[LinkListener]:
    opened = LinkListener()
    yield opened
    opened.close()


@pytest.fixture
def child() -> Iterator[int]:
    """A child process of the test, as a worker is a child of its agent."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.communicate()


def come(link_listener: LinkListener, ticket: bytes) -> socket.socket:
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    agent.connect(link_listener.path)
    agent.sendall(ticket)
    return agent


def test_the_parent_of_the_worker_gets_in(link_listener, child):
    with come(link_listener, link_listener.ticket) as agent, link_listener.open(child) as link:
        agent.sendall(b"x")
        assert link.recv(1) == b"x"


def test_another_than_the_parent_and_another_ticket_do_not(link_listener, child):
    with come(link_listener, link_listener.ticket), pytest.raises(PermissionError):
        link_listener.open(os.getpid())
    with come(link_listener, bytes(len(link_listener.ticket))), pytest.raises(PermissionError):
        link_listener.open(child)


def test_nor_does_one_that_cannot_be_seen_from_here(link_listener, monkeypatch):
    """From another namespace of processes every process has the number 0, and so does a missing parent."""
    monkeypatch.setattr(module, "peer_of", lambda connection: (0, os.geteuid()))
    with come(link_listener, link_listener.ticket), pytest.raises(PermissionError):
        link_listener.open(2**22 + 1)
