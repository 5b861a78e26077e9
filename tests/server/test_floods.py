"""Connections that are closed because of the data that they send."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from end_to_end.processes import wait_for

from shardcall_server.frontend.access.floods import FloodGuard

BURST = 128 << 10
PER_S = 1 << 10


class Port:
    """A listening socket of this process, and connections to it."""

    def __init__(self, stack: ExitStack, host: str = "127.0.0.1") -> None:
        self._stack = stack
        self.now = 0.0
        self.closed: list[str] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = stack.enter_context(socket.create_server((host, 0), family=family))
        self.number = self._listener.getsockname()[1]

    def connect(self, source: tuple[str, int] | None = None) -> tuple[socket.socket, socket.socket, str]:
        """Returns both ends, and gRPC's name of the client's, which is at `source` if that is given."""
        at = self._listener.getsockname()[:2]
        client = self._stack.enter_context(socket.create_connection(at, 60, source))
        accepted, (host, port, *_) = self._listener.accept()
        self._stack.enter_context(accepted)
        name = f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"
        return client, accepted, name


@pytest.fixture
def host() -> str:
    return "127.0.0.1"


@pytest.fixture
def port(host: str) -> Iterator[Port]:
    with ExitStack() as stack:
        try:
            opened_port = Port(stack, host)
        except OSError as error:
            pytest.skip(f"no {host} here: {error}")
        yield opened_port


def guarding(port: Port, clock: Callable[[], float]) -> closing[FloodGuard]:
    """A guard that scans when the test does, and closes a connection at the first scan above the limit."""
    guard = FloodGuard(port.closed.append, clock, scan_s=3600.0, patience=1)
    guard.watch([port.number])
    return closing(guard)


@pytest.fixture
def guard(port: Port) -> Iterator[FloodGuard]:
    with guarding(port, lambda: port.now) as guard:
        yield guard


def bring(client: socket.socket, accepted: socket.socket, count: int) -> None:
    """Sends a number of bytes, which the other end reads."""
    for begin in range(0, count, 1 << 14):
        piece = bytes(min(1 << 14, count - begin))
        client.sendall(piece)
        accepted.recv(len(piece), socket.MSG_WAITALL)


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    finally:
        client.settimeout(60)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(
    "allowed",  # seconds that pass, and what is sent then
    [[(0.0, BURST)], [(0.0, BURST), (10.0, 10 * PER_S)], [(0.0, 0), (1e6, BURST)]],
    ids=["at once", "again with time", "and nothing is saved up"],
)
def test_a_connection_that_sends_too_much_is_closed(port, guard, allowed):
    client, accepted, name = port.connect()
    for wait_s, count in allowed:
        port.now += wait_s
        bring(client, accepted, count)
        guard.scan()
    assert is_open(client)
    bring(client, accepted, 1)
    guard.scan()
    assert not is_open(client)
    guard.scan()
    assert port.closed == [name]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_admitted_call_lifts_the_limit_of_its_connection_alone(port, guard):
    client, accepted, name = port.connect()
    other, other_accepted, other_name = port.connect()
    guard.admit(name)
    for _ in range(3):
        bring(client, accepted, 2 * BURST)
        guard.scan()
    bring(other, other_accepted, 2 * BURST)
    guard.scan()
    assert port.closed == [other_name]
    assert is_open(client)


def test_the_admission_of_a_connection_ends_with_it(port, guard):
    client, accepted, name = port.connect()
    guard.admit(name)
    guard.scan()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # the port is free at once
    ours = client.getsockname()[:2]
    client.close()
    accepted.close()
    guard.scan()
    client, accepted, again = port.connect(ours)
    assert again == name
    bring(client, accepted, 2 * BURST)
    guard.scan()
    assert port.closed == [name]


def test_sockets_of_other_ports_and_of_no_network_are_left_alone(port, guard):
    with ExitStack() as stack:
        one, other = map(stack.enter_context, socket.socketpair())
        for client, accepted in (Port(stack).connect()[:2], (one, other)):
            bring(client, accepted, 2 * BURST)
            guard.scan()
            assert is_open(client)
    assert port.closed == []


def test_it_looks_by_itself(port):
    with closing(FloodGuard(port.closed.append, scan_s=0.01)) as guard:
        guard.watch([port.number])
        client, accepted, name = port.connect()
        bring(client, accepted, 3 * BURST)
        wait_for(lambda: not is_open(client))  # an instant after it is reported
        assert port.closed == [name]


def test_a_connection_is_closed_at_the_fourth_scan_that_finds_too_much(port):
    client, accepted, name = port.connect()
    with closing(FloodGuard(port.closed.append, lambda: port.now, scan_s=3600.0)) as guard:
        guard.watch([port.number])
        bring(client, accepted, BURST + 1)
        for _ in range(3):
            guard.scan()
        assert port.closed == []
        port.now = 1.0  # what it sent too much is allowed again
        guard.scan()
        bring(client, accepted, 2 * PER_S)
        for _ in range(4):
            assert port.closed == []
            guard.scan()
    assert port.closed == [name]


def test_a_connection_whose_call_is_admitted_during_a_scan_stays(port):
    client, accepted, name = port.connect()
    bring(client, accepted, 8 * BURST)

    def clock() -> float:
        guard.admit(name)  # on another thread, while the scan looks at this connection
        return 0.0

    with guarding(port, clock) as guard:
        guard.scan()
        guard.scan()
    assert is_open(client)
    assert port.closed == []
