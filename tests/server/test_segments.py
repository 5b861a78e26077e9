"""Segments as files: complete, sealed, counted, and deleted with their last user."""

import ctypes
import fcntl
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from rows import rows
from server.huge_pages import huge_kib
from server.refusals import refusal

from shardcall_core.call_error import CallError, Reason
from shardcall_core.wire.shared_memory import HUGE_PAGE_BYTES, map_file
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.segments import MAX_OWNER_SEGMENTS, MAX_SEGMENTS, SegmentTable, ServerSegment

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
    segment = registry.open()
    used = registry.segments.acquire(segment.segment_id, 0, 64)
    registry.open("two")
    while_it_closes = refusal(registry.segments.open, "three", 2 * _MIB, registry.segments.close)
    assert while_it_closes.reason is Reason.SERVER_DRAINING
    assert registry.segments.count == 1
    used.release()
    assert registry.is_empty()
    assert refusal(registry.open).reason is Reason.SERVER_DRAINING
