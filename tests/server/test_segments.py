"""Segments as files, and the broker's socket: a ticket gives its segment once, and the connection is the lease."""

import contextlib
import ctypes
import fcntl
import itertools
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from end_to_end.processes import wait_for
from rows import rows
from server.conftest import refusal
from server.fake_calls import FakeServerCall, huge_kib
from server.other_user import NEEDS_ROOT, answer_to_nobody

from shardcall.v1 import segment_service_pb2, timing_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.shared_memory import HUGE_PAGE_BYTES, map_file
from shardcall_server.frontend.memory.arena import SEALS
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.segment_broker import SegmentBroker, make_segment_broker
from shardcall_server.frontend.memory.segments import MAX_OWNER_SEGMENTS, MAX_SEGMENTS, SegmentTable, ServerSegment
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.services.segment_servicer import SegmentServicer

_MIB = 1 << 20
_MADV_COLLAPSE = 25
_FALLOC_KEEP_SIZE, _FALLOC_PUNCH_HOLE = 1, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


class Registry:
    """Segments with a budget of their own, and the memory ids that were reported as deleted."""

    def __init__(self, max_bytes: int = 16 * _MIB, limit_bytes: int = 64 * _MIB) -> None:
        self.budget = MemoryBudget(limit_bytes, limit_bytes)
        self.gone: list[int] = []
        self.segments = SegmentTable(self.budget, max_bytes, itertools.count(7).__next__, self.gone.append)

    def open(self, owner: str = "one", nbytes: int = 2 * _MIB) -> ServerSegment:
        return self.segments.open(owner, nbytes, lambda: None)

    def is_empty(self) -> bool:
        segments = self.segments
        return (segments.count, segments.nbytes, segments.leases, self.budget.used_bytes) == (0, 0, 0, 0)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def segment_files() -> int:
    """The number of descriptors of segments that this process has."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += os.readlink(link).startswith("/memfd:shardcall-segment")
        except FileNotFoundError:  # the listing's own
            continue
    return count


def test_a_segment_has_complete_huge_pages_with_memory_behind_all_of_them(registry: Registry):
    segment = registry.open(nbytes=3 * _MIB + 1)
    status = os.fstat(segment.fd)
    assert segment.nbytes == status.st_size == 4 * _MIB
    assert status.st_blocks * 512 == 4 * _MIB
    assert registry.budget.used_bytes == registry.segments.nbytes == 4 * _MIB


def test_a_mapped_segment_has_huge_pages(registry: Registry):
    memory = map_file(registry.open().fd, HUGE_PAGE_BYTES, populate=True)
    if _LIBC.madvise(ctypes.c_void_p(memory.ctypes.data), ctypes.c_size_t(HUGE_PAGE_BYTES), _MADV_COLLAPSE):
        pytest.skip(f"this kernel makes no huge pages of shared memory: {os.strerror(ctypes.get_errno())}")
    assert huge_kib(map_file(registry.open(nbytes=4 * _MIB).fd, 4 * _MIB, populate=True)) == 4096


def test_a_segment_can_be_neither_shrunk_nor_grown_and_takes_no_more_seals(registry: Registry):
    segment = registry.open()
    for nbytes in (0, _MIB, 4 * _MIB):
        with pytest.raises(PermissionError):
            os.ftruncate(segment.fd, nbytes)
    for seal in (fcntl.F_SEAL_WRITE, fcntl.F_SEAL_SHRINK):
        with pytest.raises(PermissionError):
            fcntl.fcntl(segment.fd, fcntl.F_ADD_SEALS, seal)
    assert os.fstat(segment.fd).st_size == 2 * _MIB


def test_a_new_segment_shows_nothing_of_an_earlier_one_nor_has_its_id(registry: Registry):
    first = registry.open()
    map_file(first.fd, first.nbytes, populate=True)[:] = 0xA5
    first.release_lease()
    second = registry.open("two")
    assert not map_file(second.fd, second.nbytes, populate=True).any()
    segments = [first, second, *(registry.open() for _ in range(2))]
    assert len({segment.segment_id for segment in segments}) == 4
    assert [segment.memory_id for segment in segments] == [7, 8, 9, 10]
    assert {len(segment.segment_id) for segment in segments} == {16}


def test_the_end_of_the_lease_gives_all_back(registry: Registry):
    before = segment_files()
    segment = registry.open()
    for _ in range(2):  # however often it is reported
        segment.release_lease()
    assert registry.is_empty()
    assert registry.gone == [segment.memory_id]
    assert segment_files() == before


def test_an_execution_keeps_its_segment_while_it_lasts(registry: Registry):
    segment = registry.open()
    used = registry.segments.acquire(segment.segment_id, 64, 64)
    used.acquire()
    for _ in range(2):
        segment.release_lease()
    used.release()
    assert os.fstat(used.fd).st_size == 2 * _MIB
    assert (registry.segments.count, registry.segments.leases, registry.gone) == (1, 0, [])
    error = refusal(registry.segments.acquire, segment.segment_id, 0, 64, "operand 1")
    assert (error.reason, error.field) == (Reason.SEGMENT_NOT_FOUND, "operand 1")
    assert "as a stream" in error.message
    assert segment.segment_id.hex() not in error.message
    used.release()
    assert registry.is_empty()
    assert registry.gone == [segment.memory_id]
    with pytest.raises(RuntimeError, match="last user"):
        used.acquire()


@rows("segment_id", [b"", b"a" * 15, b"a" * 17])
def test_an_id_of_another_length_is_malformed(registry: Registry, segment_id: bytes):
    error = refusal(registry.segments.acquire, segment_id, 0, 64, "result_space")
    assert (error.reason, error.field) == (Reason.MALFORMED_REQUEST, "result_space")


def test_an_array_must_begin_at_64_bytes_and_end_inside(registry: Registry):
    segment = registry.open()
    end, wraps = 2 * _MIB, 2**64 - 64
    for offset, nbytes in ((1, 8), (8, 8), (0, end + 1), (end, 1), (end - 64, 65), (wraps, 128), (64, wraps)):
        error = refusal(registry.segments.acquire, segment.segment_id, offset, nbytes, "operand 0")
        assert (error.reason, error.field) == (Reason.MALFORMED_REQUEST, "operand 0")
    for offset, nbytes in ((0, end), (end - 64, 64), (end, 0), (64, 1)):
        assert registry.segments.acquire(segment.segment_id, offset, nbytes) is segment
        segment.release()
    segment.release_lease()
    assert registry.is_empty()  # what was refused holds nothing


def test_owners_have_separate_limits_and_more_than_one_is_refused_for_good():
    registry = Registry(max_bytes=5 * _MIB)
    assert registry.segments.max_bytes == 4 * _MIB
    for nbytes in (4 * _MIB + 1, 2**64 - 1):
        error = refusal(registry.open, "one", nbytes)
        assert (error.reason, error.field) == (Reason.CALL_TOO_LARGE, "size_bytes")
    assert registry.is_empty()
    first = registry.open("one", 4 * _MIB)
    assert refusal(registry.open, "one", 1).reason is Reason.QUOTA_EXCEEDED
    registry.open("two", 4 * _MIB)
    first.release_lease()
    registry.open("one", 1)


def test_a_segment_beyond_the_budget_takes_nothing():
    registry = Registry(limit_bytes=4 * _MIB)
    registry.open("one", 4 * _MIB).release_lease()
    kept = registry.open("one")
    assert refusal(registry.open, "two", 4 * _MIB).reason is Reason.SERVER_BUSY
    assert registry.segments.nbytes == registry.budget.used_bytes == kept.nbytes


def test_the_number_of_segments_is_bounded_by_owner_and_in_all():
    registry = Registry(max_bytes=_MIB << 20, limit_bytes=_MIB << 20)
    opened = [registry.open() for _ in range(MAX_OWNER_SEGMENTS)]
    assert refusal(registry.open).reason is Reason.QUOTA_EXCEEDED
    opened += [registry.open(f"of {n}") for n in range(MAX_SEGMENTS - MAX_OWNER_SEGMENTS)]
    assert refusal(registry.open, "another").reason is Reason.SERVER_BUSY
    opened.pop().release_lease()
    opened.append(registry.open("another"))
    registry.segments.close()
    assert registry.is_empty()


def test_a_call_that_ends_while_its_segment_is_allocated_leaves_nothing(registry: Registry):
    before = segment_files()
    files = []

    def end() -> None:
        files.append(segment_files())
        raise CallError(Reason.CANCELLED, "the caller cancelled the call")

    assert refusal(registry.segments.open, "one", 2 * _MIB, end).reason is Reason.CANCELLED
    assert files == [before + 1]
    assert segment_files() == before
    assert registry.is_empty()


def test_a_hole_in_one_segment_is_seen_in_no_other(registry: Registry):
    harmed, other = registry.open("one"), registry.open("two")
    harmed_memory, other_memory = (map_file(segment.fd, segment.nbytes, populate=True) for segment in (harmed, other))
    harmed_memory[:] = other_memory[:] = 0x5A
    mode = ctypes.c_int(_FALLOC_KEEP_SIZE | _FALLOC_PUNCH_HOLE)
    assert _LIBC.fallocate(harmed.fd, mode, ctypes.c_long(4096), ctypes.c_long(8192)) == 0
    expected = np.full(harmed.nbytes, 0x5A, np.uint8)
    assert np.array_equal(other_memory, expected)
    expected[4096:12288] = 0
    assert np.array_equal(harmed_memory, expected)


def test_a_closed_registry_ends_all_leases_and_makes_no_more(registry: Registry):
    used = registry.segments.acquire(registry.open().segment_id, 0, 64)
    registry.open("two")
    assert refusal(registry.segments.open, "three", 2 * _MIB, registry.segments.close).reason is Reason.SERVER_DRAINING
    assert registry.segments.count == 1
    used.release()
    assert registry.is_empty()
    assert refusal(registry.open).reason is Reason.SERVER_DRAINING


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
        assert [received(connection) for connection in silent[:150]] == [(b"", [])] * 150
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
def test_the_users_runtime_directory_comes_first_unless_it_is_unusable(parent: str, monkeypatch, runtime):
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
