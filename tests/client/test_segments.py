"""The allocator of segments that are ordinary memory, with a lease that a test can see, and copies into them."""

import gc
import itertools
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from client.stream_server import in_threads, threads_named
from hypothesis import given
from hypothesis import strategies as st
from rows import rows

from shardcall._src.memory.free_list import FreeList
from shardcall._src.memory.segment import CannotShareError, Segment
from shardcall._src.memory.segments import Segments
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.transfer.copying import Copier
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ServerUnavailableError

MIB = 2**20
pytestmark = pytest.mark.usefixtures("quick_collections")


# Segments


class Source:
    """Makes segments of ordinary memory; ``open`` lists the open leases."""

    def __init__(self):
        self.now = 0.0
        self.leases = []
        self.fails = None
        self.segments = Segments(self.make, 128 * MIB, clock=lambda: self.now)

    def make(self, nbytes, deadline):
        if self.fails:
            raise self.fails
        lease, end = os.pipe()
        os.set_blocking(lease, False)
        self.leases.append((lease, nbytes))
        return Segment(len(self.leases).to_bytes(16, "big"), np.zeros(nbytes, np.uint8), end)

    @property
    def open(self):
        """The sizes, in MiB, of the segments whose lease lasts: the pipe's other end is open."""
        lasting = []
        for lease, nbytes in self.leases:
            try:
                os.read(lease, 1)
            except BlockingIOError:
                lasting.append(nbytes // MIB)
        return lasting

    def reserve(self, *sizes):
        return self.segments.reserve(sizes, Deadline(10))


@pytest.fixture
def source():
    source_under_test = Source()
    yield source_under_test
    source_under_test.segments.close()
    for lease, _ in source_under_test.leases:
        os.close(lease)


def test_blocks_do_not_overlap_and_are_aligned(source):
    blocks = source.reserve(1, 65, 3 * MIB, 100)
    ranges = sorted((block.offset, block.offset + block.nbytes) for block in blocks)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(ranges))
    assert all(block.offset % 64 == 0 for block in blocks)
    assert blocks[2].offset % (2 * MIB) == 0
    assert [block.nbytes for block in blocks] == [64, 128, 3 * MIB, 128]
    assert source.open == [32]


def test_a_segment_is_as_large_as_it_must_be(source):
    _held = source.reserve(33 * MIB, 2 * MIB)
    assert source.open == [36]
    assert source.reserve(3 * MIB) is not None
    assert source.open == [36, 32]


def test_there_is_no_more_than_the_server_allows(source):
    _held = source.reserve(100 * MIB)
    assert source.reserve(29 * MIB) is None
    assert source.reserve(20 * MIB, 10 * MIB) is None
    _more = source.reserve(28 * MIB)
    assert source.open == [100, 28]


def test_the_last_view_of_an_array_frees_its_block(source):
    (block,) = source.reserve(30 * MIB)
    array = block.array(Array((30, MIB), "uint8"))
    view = array[3:5].view(np.int16).T
    del block, array
    gc.collect()
    assert source.reserve(30 * MIB)[0].segment_id != view.base.base.segment_id
    segment_id = view.base.base.segment_id
    del view
    assert source.reserve(28 * MIB)[0].segment_id == segment_id


def test_a_block_may_be_freed_within_the_allocator_itself(source):
    held = [source.reserve(64)[0] for _ in range(100)]
    with source.segments._lock:
        held.clear()
        gc.collect()
    source.reserve(30 * MIB)
    assert source.open == [32]


def test_a_part_becomes_a_separate_block(source):
    (block,) = source.reserve(10 * MIB)
    start = block.offset
    part = block.carve(start + 64, 100)
    assert (part.offset, part.nbytes) == (start + 64, 128)
    assert (block.offset, block.nbytes) == (start + 192, 10 * MIB - 192)
    block.release()
    assert source.reserve(64)[0].offset == start
    (rest,) = source.reserve(9 * MIB)
    assert rest.offset + rest.nbytes <= 32 * MIB
    assert part.offset not in range(rest.offset, rest.offset + rest.nbytes)


def test_an_empty_segment_goes_when_a_larger_one_comes(source):
    source.reserve(MIB)
    _held = source.reserve(120 * MIB)
    assert source.open == [120]


def test_an_empty_segment_that_is_not_the_only_one_goes_when_it_has_not_been_used_for_a_while(source):
    first, second = source.reserve(30 * MIB), source.reserve(30 * MIB)
    del second
    source.reserve(64)
    assert source.open == [32, 32]
    source.now = 11.0
    both = source.reserve(64, 30 * MIB)
    assert source.open == [32, 32]
    del both
    source.reserve(64)
    source.now = 22.0
    source.reserve(64)
    assert source.open == [32]
    del first
    source.now = 100.0
    source.reserve(64)
    assert source.open == [32]


def test_abandoned_memory_is_not_reused(source):
    (block,) = source.reserve(2 * MIB)
    array = block.array(Array(2 * MIB, "uint8"))
    assert source.segments.locate(array).offset == block.offset
    source.segments.retire({block.segment_id})
    assert source.segments.locate(array) is None
    assert source.open == []
    array[:] = 1
    assert source.reserve(2 * MIB)[0].segment_id != block.segment_id


@rows("pick", [lambda a: a[1:], lambda a: a.T, lambda a: a[:, 1:]])
def test_what_cannot_be_named_is_not_located(source, pick):
    (block,) = source.reserve(2 * MIB)
    array = block.array(Array((5, 3), "float64"))
    assert source.segments.locate(array) is not None
    assert source.segments.locate(pick(array)) is None
    assert source.segments.locate(np.zeros(3)) is None


@pytest.mark.parametrize(
    ("error", "is_final"),
    [(CannotShareError(), True), (ServerUnavailableError("gone"), False), (OSError(12, "no memory"), False)],
)
def test_what_fails_for_now_is_tried_again_later_and_what_cannot_be_is_not(source, error, is_final):
    source.fails = error
    assert source.reserve(64) is None
    source.fails = None
    assert source.reserve(64) is None
    source.now = 1e9 if is_final else 2.0
    assert (source.reserve(64) is None) is is_final
    assert source.segments.may_share is not is_final


def test_after_closing_there_are_no_blocks(source):
    _held = source.reserve(64)
    source.segments.close()
    assert source.open == []
    assert source.reserve(64) is None


def test_threads_that_wait_for_a_segment_share_it(source):
    waiting, make = threading.Event(), source.make
    begin = threading.Barrier(3, action=waiting.set)

    def slow(nbytes, deadline):
        waiting.wait(5)
        return make(nbytes, deadline)

    def run(_):
        begin.wait(10)
        return source.reserve(MIB)[0]

    source.segments._open_segment = slow
    held = in_threads(3, run)
    assert (len({block.offset for block in held}), source.open) == (3, [32])


def test_a_reservation_waits_for_a_fork_that_empties_the_segments(source):
    source.reserve(MIB)
    source.segments.begin_fork()
    with ThreadPoolExecutor(1) as threads:
        taken = threads.submit(source.reserve, MIB)
        assert len(source.segments) == 0
        assert not taken.done()
        source.segments.finish_fork()
        assert taken.result(20) is not None
    assert len(source.segments) == 1


def test_a_child_has_new_locks(source):
    source.segments.begin_fork()
    with ThreadPoolExecutor(1) as threads:
        source.segments.begin_anew()
        assert threads.submit(source.reserve, MIB).result(20) is not None


# Free ranges


SIZE = 4096


STEPS = st.lists(st.tuples(st.integers(1, 900), st.sampled_from([1, 64, 512]), st.integers(0, 9)), max_size=60)


@given(STEPS)
def test_no_byte_is_allocated_twice_and_none_is_lost(steps):
    free, taken = FreeList(SIZE), []
    for nbytes, alignment, which in steps:
        offset = free.allocate(nbytes, alignment)
        if offset is not None:
            assert offset % alignment == 0
            assert offset + nbytes <= SIZE
            assert all(offset + nbytes <= begin or begin + size <= offset for begin, size in taken)
            taken.append((offset, nbytes))
        elif taken:
            free.free(*taken.pop(which % len(taken)))
    for begin, size in taken:
        free.free(begin, size)
    assert free.is_unused


# Copies


@pytest.fixture
def copier():
    copier_under_test = Copier()
    yield copier_under_test
    copier_under_test.close()


@rows("shape", [(), (0,), (3, 0), (MIB + 3,), (1, MIB + 3), (1, 1, 3, 350_001), (5, 220_001)])
@rows("order", ["C", "F"])
def test_every_element_is_copied(copier, shape, order):
    source = np.asarray(np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape), order=order)
    target = np.empty(shape)
    copier.copy(target, source)
    np.testing.assert_array_equal(target, source)


def test_one_thread_helps_with_large_copies_and_ends_on_closing(copier):
    before = threads_named("shardcall-copy")
    copier.copy(np.empty(MIB, np.uint8), np.zeros(MIB, np.uint8))
    assert threads_named("shardcall-copy") <= before
    for _ in range(3):
        copier.copy(np.empty(16 * MIB, np.uint8), np.zeros(16 * MIB, np.uint8))
    (helper,) = threads_named("shardcall-copy") - before
    copier.close()
    helper.join(10)
    assert not helper.is_alive()
    target = np.empty(16 * MIB, np.uint8)
    copier.copy(target, np.ones(16 * MIB, np.uint8))
    assert target.all()


def test_ctrl_c_ends_no_copy_before_the_helper_has(copier, monkeypatch):
    copyto, may_copy = np.copyto, threading.Event()

    def copy(*arguments, **keywords):
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
            may_copy.set()
        else:
            may_copy.wait(60)
        copyto(*arguments, **keywords)

    monkeypatch.setattr(np, "copyto", copy)
    target = np.zeros(16 * MIB, np.uint8)
    with pytest.raises(KeyboardInterrupt):
        copier.copy(target, np.ones_like(target))
    assert target.all()


def test_a_copy_for_which_no_thread_starts_is_not_repeated_later(copier, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    target = np.zeros(16 * MIB, np.uint8)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        copier.copy(target, np.ones_like(target))
    assert target.all()
    target[:] = 0
    copier.copy(np.empty_like(target), np.ones_like(target))
    assert not target.any()
