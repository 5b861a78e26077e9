"""Notifications to a service manager, read from a socket as systemd's is."""

import os
import secrets
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from rows import rows
from servers import running_server

from shardcall_server.frontend.service_manager import ServiceManager


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """Returns the value of NOTIFY_SOCKET and the socket that the manager reads."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@shardcall-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(name.replace("@", "\0", 1) if name.startswith("@") else name)
        receiver.settimeout(60)
        yield name, receiver


def received(receiver: socket.socket) -> dict[str, str]:
    """Returns the assignments of the next message."""
    return dict(line.split("=", 1) for line in receiver.recv(4096).decode().split("\n"))


def test_assignments_arrive_in_one_message(manager):
    name, receiver = manager
    ServiceManager({"NOTIFY_SOCKET": name}).notify("READY=1", "STATUS=serves")
    assert received(receiver) == {"READY": "1", "STATUS": "serves"}


def test_the_watchdog_is_notified_twice_in_its_time(manager):
    name, receiver = manager
    now = [0.0]
    environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())}
    service_manager = ServiceManager(environment, lambda: now[0])
    receiver.setblocking(False)
    counts = []
    for now[0] in (0.0, 0.5, 1.9, 2.0, 3.9, 4.0):
        service_manager.keep_alive()
        try:
            counts.append(received(receiver) == {"WATCHDOG": "1"})
        except BlockingIOError:
            counts.append(False)
    assert counts == [True, False, False, True, False, True]


@rows(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"},  # of another process
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": ""},
    ],
)
def test_nobody_is_notified_without_a_watchdog(environment):
    service_manager = ServiceManager(environment)
    service_manager.notify = lambda *_: pytest.fail("a notification was sent")  # type: ignore[method-assign]
    service_manager.keep_alive()


@rows("name", ["", "relative", "vsock:2:1234", "/nowhere/notify", "@shardcall-nobody"])
def test_a_manager_that_cannot_be_reached_is_ignored(name):
    ServiceManager({"NOTIFY_SOCKET": name}).notify("READY=1")


def test_a_server_notifies_of_its_start_and_its_stop(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "2000000")
        with running_server(devices=1, why="it is ended, and notifies a service manager") as running:
            assert received(receiver) == {"READY": "1", "STATUS": f"serves at {running.address}"}
            assert received(receiver) == received(receiver) == {"WATCHDOG": "1"}
            running.process.send_signal(signal.SIGTERM)
            while "STOPPING" not in (message := received(receiver)):
                assert message == {"WATCHDOG": "1"}
            assert message["STATUS"].startswith("drains")
            assert running.process.wait(60) == 0
