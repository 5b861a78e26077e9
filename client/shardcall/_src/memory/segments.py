"""Allocates blocks of shared memory in a client's segments."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Sequence

from shardcall._src.memory.segment import Block, CannotShareError, Segment, aligned_size
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.interrupts import InterruptHandler
from shardcall.v1 import kernel_service_pb2
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import ShardcallError

# Segments stay open between calls, since new memory costs 50 to 70 ms of page faults for 256 MiB.
_SMALLEST_BYTES = 32 * 2**20
_STEP_BYTES = 2 * 2**20
_IDLE_S = 10.0
_PAUSE_S = 1.0

Opener = Callable[[int, Deadline], Segment]


class Segments:
    """A client's segments; safe to use from several threads at once.

    A segment is opened when no block is large enough. An empty one is closed when another is opened, since it was too
    small, and when it has been idle for a while and is not the only one.

    Args:
        open_segment: opens a segment of a size; raises `CannotShareError` if it must not be called again.
        max_bytes: the most bytes of all segments.
        clock: returns seconds.
    """

    def __init__(self, open_segment: Opener, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._open_segment = open_segment
        self._max_bytes = max_bytes
        self._clock = clock
        self._used_at: dict[Segment, float] = {}  # in the order of opening
        self._lock = threading.RLock()  # guards the segments; the last of all
        self._opening = threading.Lock()  # held while the server opens a segment, before `_lock`
        self._not_before = -float("inf")
        with _forks.lock:
            _forks.segments.add(self)

    def __len__(self) -> int:
        return len(self._used_at)

    @property
    def may_share(self) -> bool:
        """False if memory can never be shared."""
        return self._not_before < float("inf")

    def reserve(self, sizes: Sequence[int], deadline: Deadline) -> list[Block] | None:
        """Returns a block of each size, uninitialized; None if not all are available.

        Args:
            sizes: the sizes in bytes, each more than 0.
            deadline: the deadline of the call that needs them.
        """
        blocks: list[Block | None] = [None] * len(sizes)
        if self._fill(blocks, sizes):
            return self._complete(blocks)
        if not self._opening.acquire(timeout=deadline.remaining_s()):
            return None
        try:
            # Another thread may have opened a segment meanwhile.
            if self._fill(blocks, sizes) or (
                self._open(_missing(blocks, sizes), deadline) and self._fill(blocks, sizes)
            ):
                return self._complete(blocks)
            return None
        finally:
            self._opening.release()

    def locate(self, array: NDArray) -> kernel_service_pb2.SegmentRegion | None:
        """Returns the region of an array as a message; None if it is in no open segment."""
        with self._lock:
            for segment in self._used_at:
                if (offset := segment.offset_of(array)) is not None:
                    return kernel_service_pb2.SegmentRegion(segment_id=segment.segment_id, offset=offset)
        return None

    def retire(self, segment_ids: Collection[bytes] | None = None) -> None:
        """Closes segments; arrays in them stay valid.

        Args:
            segment_ids: the ids of the segments; None for all of them.
        """
        with self._lock:
            for segment in list(self._used_at):
                if segment_ids is None or segment.segment_id in segment_ids:
                    self._close(segment)

    def begin_fork(self) -> None:
        """Retires all segments and prevents new ones until `finish_fork`: a child would see later changes to them."""
        self._lock.acquire()
        self.retire()

    def finish_fork(self) -> None:
        """Allows new segments again, in the parent."""
        self._lock.release()

    def begin_anew(self) -> None:
        """Replaces the locks in the child, which lacks the threads that held them."""
        self._lock, self._opening = threading.RLock(), threading.Lock()

    def close(self) -> None:
        """Closes all segments for good."""
        self._not_before = float("inf")
        self.retire()

    def _fill(self, blocks: list[Block | None], sizes: Sequence[int]) -> bool:
        """Allocates missing blocks in the open segments; returns True if none is missing then."""
        with self._lock:
            now = self._clock()
            for segment in self._used_at:
                if segment.collect():
                    self._used_at[segment] = now
            for i, size in enumerate(sizes):
                blocks[i] = blocks[i] or self._take(size, now)
            for segment, used_at in list(self._used_at.items()):
                if segment.is_empty and len(self._used_at) > 1 and now - used_at > _IDLE_S:
                    self._close(segment)
            return None not in blocks

    def _take(self, size: int, now: float) -> Block | None:
        for segment in self._used_at:
            if (block := segment.allocate(size)) is not None:
                self._used_at[segment] = now
                return block
        return None

    def _open(self, nbytes: int, deadline: Deadline) -> bool:
        if self._clock() < self._not_before:
            return False
        with self._lock:
            for segment in [segment for segment in self._used_at if segment.is_empty]:
                self._close(segment)
            left = self._max_bytes - sum(segment.nbytes for segment in self._used_at)
        size = -(-nbytes // _STEP_BYTES) * _STEP_BYTES
        if size > left:
            return False
        with InterruptHandler():  # the handler of a signal may raise an OSError, too
            try:
                segment = self._open_segment(min(max(size, _SMALLEST_BYTES), left), deadline)
            except CannotShareError:
                self._not_before = float("inf")
                return False
            except (ShardcallError, OSError):
                self._not_before = max(self._not_before, self._clock() + _PAUSE_S)
                return False
        with self._lock:
            if not self.may_share:  # closed meanwhile
                segment.close()
                return False
            self._used_at[segment] = self._clock()
        return True

    def _close(self, segment: Segment) -> None:
        segment.close()
        del self._used_at[segment]

    @staticmethod
    def _complete(blocks: Sequence[Block | None]) -> list[Block]:
        return [block for block in blocks if block is not None]


class _SegmentForks:
    """Retires the segments of this process when it forks.

    A child maps the same memory; later results in it would overwrite those that the child has.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()  # guards both; held during a fork, before the locks of all `Segments`
        self.segments: weakref.WeakSet[Segments] = weakref.WeakSet()
        self._held: list[Segments] = []

    def begin(self) -> None:
        """Runs before a fork."""
        self.lock.acquire()
        for segments in list(self.segments):
            segments.begin_fork()
            self._held.append(segments)

    def finish(self) -> None:
        """Runs in the parent."""
        try:
            while self._held:
                self._held.pop().finish_fork()
        finally:
            self.lock.release()

    def begin_anew(self) -> None:
        """Runs in the child."""
        for segments in self._held:
            segments.begin_anew()
        self._held = []
        self.lock = threading.Lock()


_forks = _SegmentForks()  # global, since fork handlers cannot be unregistered
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forks.begin, after_in_parent=_forks.finish, after_in_child=_forks.begin_anew)


def _missing(blocks: Sequence[Block | None], sizes: Sequence[int]) -> int:
    return sum(aligned_size(size) for block, size in zip(blocks, sizes, strict=True) if block is None)
