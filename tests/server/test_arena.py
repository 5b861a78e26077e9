"""Memory of calls: pooled, of huge pages, counted, and never shared by two calls."""

import itertools
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from server.conftest import refusal
from server.fake_calls import huge_kib

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.wire.shared_memory import HUGE_PAGE_BYTES
from shardcall_server.frontend.memory.arena import Arena, size_class
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.call_buffers import BufferAllocator

MIB = 1 << 20


@pytest.fixture
def gone() -> list[int]:
    return []


@pytest.fixture
def arena(gone: list[int]) -> Iterator[Arena]:
    arena = Arena(MemoryBudget(256 * MIB, 192 * MIB), itertools.count(1).__next__, gone.append)
    yield arena
    arena.drop(arena.idle_bytes)


def present(region):
    """Has all memory of a region; returns it."""
    region.reserve(region.nbytes, lambda: None)
    return region


def test_a_released_region_of_its_size_stays_in_memory_and_the_next_call_gets_it(arena):
    first = present(arena.acquire("a", 5 * MIB))
    for size in (0, 2 * first.nbytes):
        with pytest.raises(PermissionError):
            os.ftruncate(first.fd, size)
    memory_id = first.memory_id
    assert arena.budget.used_bytes == first.nbytes == 6 * MIB
    first.release()
    assert (arena.budget.used_bytes, arena.idle_bytes, arena.in_use) == (0, 6 * MIB, 0)
    second = arena.acquire("b", 5 * MIB + 1)
    assert second.memory_id == memory_id
    assert (arena.budget.used_bytes, arena.idle_bytes, arena.in_use) == (6 * MIB, 0, 1)
    second.release()


def test_a_region_is_freed_when_its_last_user_closes_it(arena):
    region = present(arena.acquire("a", 1))
    region.acquire()
    region.release()
    other = arena.acquire("b", 1)
    assert other.memory_id != region.memory_id
    region.release()
    assert arena.in_use == 1
    other.release()
    assert arena.in_use == 0


def test_a_region_that_was_closed_shows_nothing_of_the_call_that_has_its_memory_now(arena):
    stale = present(arena.acquire("a", 1))
    stale.release()
    with pytest.raises(RuntimeError):
        stale.view(0, 1)
    fresh = arena.acquire("b", 1)
    assert fresh.memory_id == stale.memory_id
    with pytest.raises(RuntimeError):
        stale.view(0, 1)
    fresh.view(0, 1)[0] = 7
    fresh.release()


def test_what_is_only_claimed_costs_nothing(arena):
    region = arena.acquire("a", 100 * MIB)
    assert arena.budget.used_bytes == 0
    region.reserve(1, lambda: None)
    assert arena.budget.used_bytes == 32 * MIB
    region.release()
    assert (arena.budget.used_bytes, arena.idle_bytes) == (0, 32 * MIB)


def test_idle_regions_go_before_anybody_is_refused(arena, gone):
    region = present(arena.acquire("a", 128 * MIB))
    region.release()
    larger = present(arena.acquire("a", 160 * MIB))
    assert gone == [region.memory_id]
    assert (arena.budget.used_bytes, arena.idle_bytes) == (160 * MIB, 0)
    larger.release()


def test_one_connection_cannot_take_all_and_what_is_refused_is_released_completely(arena):
    mine = present(arena.acquire("a", 128 * MIB))
    more = arena.acquire("a", 128 * MIB)
    error = refusal(present, more)
    assert (error.reason, error.metadata["limit"]) == (Reason.QUOTA_EXCEEDED, "max_bytes_per_client")
    theirs = present(arena.acquire("b", 8 * MIB))
    for region in (mine, more, theirs):
        region.release()
    assert (arena.budget.used_bytes, arena.budget.high_water_bytes) == (0, (128 + 64 + 8) * MIB)
    held = [present(arena.acquire("b", nbytes)) for nbytes in (96 * MIB, 80 * MIB)]
    with pytest.raises(CallError):
        present(arena.acquire("b", 128 * MIB))
    for region in held:
        region.release()
    assert arena.budget.used_bytes == 0


def test_memory_that_was_not_used_for_a_while_is_returned_to_the_system_and_views_keep_theirs(arena, gone):
    before = set(os.listdir("/proc/self/fd"))
    region = present(arena.acquire("a", 1))
    view = region.view(0, 4)
    view[:] = [1, 2, 3, 4]
    region.release()
    arena.drop_unused_since(0.0)
    assert not gone
    arena.drop_unused_since(float("inf"))
    assert gone == [region.memory_id]
    assert set(os.listdir("/proc/self/fd")) <= before  # others' may have gone meanwhile
    np.testing.assert_array_equal(view, [1, 2, 3, 4])


def test_regions_are_of_huge_pages_where_the_kernel_has_them(arena):
    region = present(arena.acquire("a", 32 * MIB))
    view = region.view(0, region.nbytes)
    assert view.ctypes.data % HUGE_PAGE_BYTES == 0
    mapped_kib = huge_kib(view)
    region.release()
    if not mapped_kib:
        pytest.skip("this kernel makes no huge pages of shared memory")
    assert mapped_kib == region.nbytes // 1024


@given(st.integers(1, 1 << 50))
def test_a_size_class_wastes_no_more_than_an_eighth_or_a_huge_page(nbytes):
    size = size_class(nbytes)
    assert size % HUGE_PAGE_BYTES == 0
    assert nbytes <= size < nbytes + max(HUGE_PAGE_BYTES, nbytes / 8 + 1)
    assert size_class(size) == size


def test_a_call_counts_once_it_has_released_its_region(arena):
    """The memory that was free during the call is less than what can be returned to the system afterwards."""
    call: Any = SimpleNamespace(owner="a", received_bytes=0, shared_bytes=0, sent_bytes=0)
    buffer_allocator = BufferAllocator(arena, cast(Any, None))
    with buffer_allocator.allocated(call, [], [ArrayType((MIB,), np.dtype(np.uint8))]):
        assert (buffer_allocator.calls, arena.in_use) == (0, 1)
    assert (buffer_allocator.calls, arena.in_use) == (1, 0)
