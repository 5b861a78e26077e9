"""OpenSegment, and the broker's socket: a ticket gives its segment once, to this user; the connection is the lease."""

import contextlib
import fcntl
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from end_to_end.processes import wait_for
from rows import rows
from server.fake_calls import FakeServerCall
from server.other_user import NEEDS_ROOT, answer_to_nobody
from server.refusals import refusal
from server.test_segments import Registry

from shardcall.v1 import segment_service_pb2, timing_pb2
from shardcall_core.call_error import Reason
from shardcall_core.wire.shared_memory import map_file
from shardcall_server.frontend.memory.arena import SEALS
from shardcall_server.frontend.memory.segment_broker import SegmentBroker, make_segment_broker
from shardcall_server.frontend.memory.segments import ServerSegment
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.services.segment_servicer import SegmentServicer

_MIB = 1 << 20
_PATIENCE_S = 20.0  # an answer comes at once; a test that waits so long has failed
_FOREVER_S = 3600.0


class Host(Registry):
    """A server's segments, a broker in a directory below ``parent``, and the segments that are gone."""

    def __init__(self, parent: str, ticket_s: float) -> None:
        super().__init__(32 * _MIB)
        segment_broker = make_segment_broker([parent], ticket_s)
        assert segment_broker
        self.segment_broker = segment_broker

    def offer(self) -> tuple[ServerSegment, bytes]:
        segment = self.open()
        return segment, self.segment_broker.offer(segment)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_PATIENCE_S)
        connection.connect(self.segment_broker.socket_path)
        return connection

    def wait_gone(self, *segments: ServerSegment) -> None:
        wait_for(lambda: {segment.memory_id for segment in segments} <= set(self.gone))
        assert [segment.fd for segment in segments] == [-1] * len(segments)

    def close(self) -> None:
        self.segment_broker.close()
        self.segments.close()


@pytest.fixture
def parent(short_folder: Path) -> str:
    return str(short_folder)


@pytest.fixture
def start(parent: str) -> Iterator[Callable[..., Host]]:
    with contextlib.ExitStack() as stack:

        def started(ticket_s: float = _FOREVER_S) -> Host:
            return stack.enter_context(contextlib.closing(Host(parent, ticket_s)))

        yield started


@pytest.fixture
def host(start: Callable[..., Host]) -> Host:
    return start()


def received(connection: socket.socket) -> tuple[bytes, list[int]]:
    """The server's message and the descriptors beside it."""
    try:
        data, descriptors, _, _ = socket.recv_fds(connection, 16, 4, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:  # it closed without having read all
        return b"", []
    return data, list(descriptors)


@contextlib.contextmanager
def redeemed(host: Host, *pieces: bytes) -> Iterator[tuple[socket.socket, int]]:
    """A lease and its segment's descriptor, for a ticket."""
    with host.connect() as connection:
        for piece in pieces:
            connection.sendall(piece)
        data, descriptors = received(connection)
        assert data == b"\x01"
        assert len(descriptors) == 1
        try:
            yield connection, descriptors[0]
        finally:
            os.close(descriptors[0])


def yields_nothing(host: Host, *pieces: bytes) -> bool:
    """True if the server closes a connection that sends these bytes, and answers nothing."""
    with host.connect() as connection:
        with contextlib.suppress(BrokenPipeError):  # it may have closed before the last piece
            for piece in pieces:
                connection.sendall(piece)
        return received(connection) == (b"", [])


def broker_in(*folders: str) -> contextlib.closing[SegmentBroker]:
    """A segment broker in the first of these folders that will do, or of the server's choosing."""
    segment_broker = make_segment_broker([*folders]) if folders else make_segment_broker()
    return contextlib.closing(cast(SegmentBroker, segment_broker))


def test_a_ticket_gives_its_segment_sealed(host: Host):
    segment, ticket = host.offer()
    with redeemed(host, ticket) as (_, descriptor):
        assert len(ticket) == 32
        assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) == SEALS
        map_file(descriptor, segment.nbytes, populate=True)[:] = 7
        assert set(os.pread(segment.fd, segment.nbytes, 0)) == {7}


def test_a_ticket_gives_one_segment_once_and_a_wrong_one_spoils_no_other(host: Host):
    opened = [host.offer() for _ in range(2)]
    almost = opened[0][1][:-1] + bytes([opened[0][1][-1] ^ 1])
    assert yields_nothing(host, secrets.token_bytes(32))
    assert yields_nothing(host, almost)
    with contextlib.ExitStack() as leases:
        for segment, ticket in opened[::-1]:
            _, descriptor = leases.enter_context(redeemed(host, ticket))
            assert os.fstat(descriptor).st_ino == os.fstat(segment.fd).st_ino
        for segment, ticket in opened:
            assert yields_nothing(host, ticket)
            assert host.segments.acquire(segment.segment_id, 0, 64) is segment  # the existing lease continues
            segment.release()


def test_a_ticket_may_come_in_pieces_and_a_part_of_one_yields_nothing(host: Host):
    _, ticket = host.offer()
    with host.connect() as connection:
        connection.sendall(ticket[:31])
        connection.shutdown(socket.SHUT_WR)
        assert received(connection) == (b"", [])
    with redeemed(host, *(bytes([byte]) for byte in ticket)):
        pass


@pytest.mark.parametrize("brought", [0, 31])
def test_who_does_not_bring_a_ticket_in_time_is_dropped(start: Callable[..., Host], brought: int):
    assert yields_nothing(start(ticket_s=0.05), bytes(brought))


def test_a_late_ticket_and_that_of_another_server_yield_nothing(start: Callable[..., Host]):
    host, other = start(ticket_s=0.05), start()
    segment, ticket = host.offer()
    host.wait_gone(segment)
    assert host.is_empty()
    assert yields_nothing(host, ticket)
    assert yields_nothing(host, other.offer()[1])


ENDS = {
    "close": socket.socket.close,
    "shutdown": lambda connection: connection.shutdown(socket.SHUT_WR),
    "send": lambda connection: connection.sendall(b"more"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_the_lease_ends_with_the_connection_or_whatever_comes_by_it(host: Host, end: Callable[[socket.socket], None]):
    segment, ticket = host.offer()
    with redeemed(host, ticket) as (connection, _):
        end(connection)
        host.wait_gone(segment)
        assert host.is_empty()


def test_an_execution_keeps_a_segment_whose_client_is_gone(host: Host):
    segment, ticket = host.offer()
    with redeemed(host, ticket):
        used = host.segments.acquire(segment.segment_id, 0, 64)
    other, other_ticket = host.offer()
    with redeemed(host, other_ticket):
        pass
    host.wait_gone(other)  # the one before it has been seen to by then
    assert os.fstat(used.fd).st_size == segment.nbytes
    assert (host.segments.count, host.segments.leases) == (1, 0)
    used.release()
    host.wait_gone(segment)
    assert host.is_empty()


@NEEDS_ROOT
@pytest.mark.parametrize(("unchecked", "outcome"), [(False, "PermissionError"), (True, "b''")])
def test_a_stolen_ticket_yields_nothing_to_another_user(host: Host, parent: str, unchecked: bool, outcome: str):
    segment, ticket = host.offer()
    path = host.segment_broker.socket_path
    os.chmod(parent, 0o755)
    if unchecked:  # so that only the check of the connection's user protects it
        Path(path).parent.chmod(0o755)
        os.chmod(path, 0o666)
    assert answer_to_nobody("SOCK_STREAM", path, ticket) == outcome
    with redeemed(host, ticket) as (_, descriptor):
        assert os.fstat(descriptor).st_ino == os.fstat(segment.fd).st_ino


def test_silent_connections_are_bounded_and_block_no_others(host: Host):
    _, ticket = host.offer()
    before = len(os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(host.connect()) for _ in range(200)]
        for connection in silent[:150]:
            assert received(connection) == (b"", [])
        with redeemed(host, ticket):
            assert len(os.listdir("/proc/self/fd")) < before + 200 + 50


def test_the_socket_is_this_users_alone_and_gone_at_the_end(host: Host, parent: str):
    path = Path(host.segment_broker.socket_path)
    assert path.parent.parent == Path(parent)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(path.stat().st_mode)
    host.close()
    assert os.listdir(parent) == []


def test_the_exit_of_the_broker_ends_every_lease(host: Host):
    held, ticket = host.offer()
    offered, _ = host.offer()
    with redeemed(host, ticket) as (connection, _), host.connect() as silent:
        host.segment_broker.close()
        assert received(connection) == received(silent) == (b"", [])
    host.wait_gone(held, offered)
    assert host.is_empty()
    assert refusal(host.offer).reason is Reason.SERVER_DRAINING
    assert host.segments.leases == 1  # still the caller's


def test_nothing_leaves_descriptors_behind(parent: str):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with contextlib.closing(Host(parent, _FOREVER_S)) as host:
            for _ in range(3):
                _, ticket = host.offer()
                with redeemed(host, ticket):
                    assert yields_nothing(host, ticket)
            host.offer()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_the_first_directory_that_will_do_is_taken(parent: str):
    before = len(os.listdir("/proc/self/fd"))
    assert make_segment_broker([f"{parent}/none", "/proc"]) is None
    too_long = Path(parent, "a" * 100)
    too_long.mkdir()
    with broker_in(f"{parent}/none", str(too_long), parent) as segment_broker:
        assert Path(segment_broker.socket_path).parent.parent == Path(parent)
        assert os.listdir(too_long) == []
    assert len(os.listdir("/proc/self/fd")) <= before


@rows("runtime", [None, "", "relative", "/nowhere", "/proc/1/root/none"])
def test_the_users_runtime_directory_comes_first_unless_it_is_unusable(
    parent: str, monkeypatch: pytest.MonkeyPatch, runtime: str | None
):
    monkeypatch.setenv("XDG_RUNTIME_DIR", parent if runtime is None else runtime)
    with broker_in() as segment_broker:
        folder = parent if runtime is None else tempfile.gettempdir()
        assert segment_broker.socket_path.startswith(f"{folder}/shardcall-")


def test_what_killed_servers_left_is_removed_and_nothing_else(start: Callable[..., Host], parent: str):
    def left(name: str, age_s: float) -> str:
        directory = Path(parent, name)
        directory.mkdir(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(directory / "segments"))
        os.utime(directory, (time.time() - age_s,) * 2)
        return name

    left("shardcall-killed", 120)
    kept = {left("shardcall-starting", 0), left("others", 120)}
    served = start()
    directory = Path(served.segment_broker.socket_path).parent
    os.utime(directory, (0, 0))
    another = Path(start().segment_broker.socket_path).parent
    assert set(os.listdir(parent)) == {*kept, directory.name, another.name}
    _, ticket = served.offer()
    with redeemed(served, ticket):  # which being looked at does not harm
        pass


def open_segment(host: Host, size_bytes: int, *, is_shared: bool = True) -> segment_service_pb2.OpenSegmentResponse:
    call: Any = FakeServerCall("one", principal_name="", finish=timing_pb2.Timing)
    servicer = SegmentServicer(host.segments, host.segment_broker if is_shared else None, Drain())
    return servicer.OpenSegment(segment_service_pb2.OpenSegmentRequest(size_bytes=size_bytes), call)


def test_open_segment_returns_all_that_is_needed_to_get_it(host: Host):
    opened = open_segment(host, 1)
    assert (opened.size_bytes, opened.ticket_seconds) == (2 * _MIB, _FOREVER_S)
    assert opened.socket_path == host.segment_broker.socket_path
    with redeemed(host, opened.ticket) as (_, descriptor):
        used = host.segments.acquire(opened.segment_id, 0, opened.size_bytes)
        assert (os.fstat(descriptor).st_ino, used.owner) == (os.fstat(used.fd).st_ino, "one")
        used.release()
    host.wait_gone(used)


def test_a_segment_that_cannot_be_had_or_offered_is_refused_and_released(host: Host):
    assert refusal(open_segment, host, 1, is_shared=False).reason is Reason.NOT_SUPPORTED
    assert refusal(open_segment, host, 0).reason is Reason.MALFORMED_REQUEST
    host.segment_broker.close()
    assert refusal(open_segment, host, 1).reason is Reason.SERVER_DRAINING
    assert host.is_empty()
