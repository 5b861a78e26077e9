"""Memory that a client on this host shares with the server: one file for one client, never another's.

A client may write there at any time, and spoils its own answer at most: the front end decides by nothing that lies
there. It does not even map it, but for workers on other hosts, which its bytes are handed on to.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable

import numpy as np

from shardcall._src.wire.shared_memory import HUGE_PAGE_BYTES, make_present, map_file, round_up
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.memory.arena import ALIGNMENT_BYTES, SEALS, memory_errors
from shardcall_server.frontend.memory.budget import MemoryBudget

SEGMENT_ID_BYTES = 16
MAX_SEGMENTS = 256
"""Each takes two descriptors, its file's and its connection's, and processes often have no more than 1024."""

MAX_OWNER_SEGMENTS = 128
_STEP_BYTES = 32 << 20
_SHOWN_DIGITS = 8  # who knows a segment's id may use it, so no message tells all of it


class ServerSegment:
    """A memory file that one client has too, and that no peer can shrink, grow or unseal.

    Its users are its lease and the executions that read or write it. The lease's end takes it out of the registry,
    so that no further call finds it; the last user's end closes the file.

    Attributes:
        segment_id: what clients call it.
        memory_id: what the worker calls it.
        fd: the file; -1 once it is closed.
        nbytes: its size.
        owner: whose budget it counts against.
        principal: who alone may use it; empty where nobody is asked who they are.
        on_used: called when a call uses it, and when its lease ends.
    """

    def __init__(
        self, registry: SegmentTable, memory_id: int, fd: int, nbytes: int, owner: str, principal: str
    ) -> None:
        self.segment_id = secrets.token_bytes(SEGMENT_ID_BYTES)
        self.memory_id = memory_id
        self.fd = fd
        self.nbytes = nbytes
        self.owner = owner
        self.principal = principal
        self.users = 1
        self.on_used: Callable[[], object] = lambda: None
        self._registry = registry
        self._memory: np.ndarray | None = None

    def view(self, begin: int, nbytes: int) -> np.ndarray:
        """The bytes of a part: for workers that cannot map the file; mapped here when it is asked for first."""
        if self._memory is None:
            self._memory = map_file(self.fd, self.nbytes, populate=False)
        return self._memory[begin : begin + nbytes]

    def acquire(self) -> None:
        """Adds a user, beside one that there is already."""
        self._registry.add_user(self)

    def release(self) -> None:
        """Ends one use."""
        self._registry.remove_user(self)

    def release_lease(self) -> None:
        """Ends the lease, if it has not ended: calls find the segment no more."""
        self._registry.release_lease(self)


class SegmentTable:
    """The segments that there are, bounded in number and by owner.

    Args:
        budget: what they count against, whole and from the beginning.
        max_bytes: the most bytes that one owner's may have together; used in whole huge pages.
        next_id: gives every memory file an id that no other of the front end's life has.
        on_gone: told the memory id of a file that was closed, so that the worker lets go of it too.

    Attributes:
        max_bytes: the limit in use, a multiple of a huge page's size.
        count: how many there are, those included that are being made or outlast their lease.
        nbytes: their bytes.
    """

    def __init__(
        self, budget: MemoryBudget, max_bytes: int, next_id: Callable[[], int], on_gone: Callable[[int], None]
    ) -> None:
        self.max_bytes = max_bytes // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        self.count = 0
        self.nbytes = 0
        self._budget = budget
        self._next_id = next_id
        self._on_gone = on_gone
        self._lock = threading.Lock()
        self._leased: dict[bytes, ServerSegment] = {}
        self._owner_bytes: Counter[str] = Counter()
        self._owner_count: Counter[str] = Counter()
        self._closed = False

    @property
    def leases(self) -> int:
        """How many segments are leased."""
        return len(self._leased)

    def open(self, owner: str, nbytes: int, check: Callable[[], None], principal: str = "") -> ServerSegment:
        """Makes a segment; whoever asked for it holds its lease.

        Args:
            owner: whose budget it counts against.
            nbytes: its size, at least 1; rounded up to whole huge pages.
            check: called before every step; raises if the call has ended.
            principal: who alone may use it.

        Raises:
            CallError: it is too large, others hold too much, or the host has no memory or descriptors left.
        """
        size = round_up(nbytes)
        self._count_in(owner, size)
        try:
            self._budget.reserve(owner, size)
            try:
                with memory_errors(size):
                    fd = _sealed_file(size, check)
            except BaseException:
                self._budget.release(owner, size)
                raise
        except BaseException:
            self._count_out(owner, size)
            raise
        segment = ServerSegment(self, self._next_id(), fd, size, owner, principal)
        with self._lock:
            closed = self._closed
            self._leased[segment.segment_id] = segment
        if closed:  # while it was made
            segment.release_lease()
            raise _draining_error()
        return segment

    def acquire(
        self, segment_id: bytes, offset: int, nbytes: int, field: str = "segment", principal: str = ""
    ) -> ServerSegment:
        """Finds the segment of an array and adds a user, who closes it once.

        Args:
            segment_id: as the client sent it.
            offset: where the array begins.
            nbytes: the array's size.
            field: the part of the request that names it, for the error message.
            principal: who asks; the segments of others are as if they were not there.

        Raises:
            CallError: there is no such segment, or the array cannot lie there.
        """
        if len(segment_id) != SEGMENT_ID_BYTES:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"a segment's id has {SEGMENT_ID_BYTES} bytes and {field} has one of {len(segment_id)}; send the one "
                "that OpenSegment answered with",
                field=field,
            )
        with self._lock:
            segment = self._leased.get(segment_id)
            if segment is None or segment.principal != principal:
                raise CallError(
                    Reason.SEGMENT_NOT_FOUND,
                    f"{field} names segment {segment_id.hex()[:_SHOWN_DIGITS]}…, which the server does not have, or no "
                    "more; send the arrays as a stream, or open another segment",
                    field=field,
                )
            _check_range(segment, offset, nbytes, field)
            segment.users += 1
        segment.on_used()
        return segment

    def close(self) -> None:
        """Ends every lease and makes no more segments; those that executions hold go when these are done."""
        with self._lock:
            self._closed = True
            leased = list(self._leased.values())
        for segment in leased:
            segment.release_lease()

    def add_user(self, segment: ServerSegment) -> None:
        """Adds a user; see `ServerSegment.acquire`."""
        with self._lock:
            if not segment.users:
                raise RuntimeError("a segment was used after its last user had closed it")
            segment.users += 1

    def release_lease(self, segment: ServerSegment) -> None:
        """Ends the lease; see `ServerSegment.release_lease`."""
        with self._lock:
            ended = self._leased.pop(segment.segment_id, None) is None
        if not ended:
            segment.on_used()
            self.remove_user(segment)

    def remove_user(self, segment: ServerSegment) -> None:
        """Ends one use; see `ServerSegment.release`."""
        with self._lock:
            segment.users -= 1
            if segment.users:
                return
            fd, segment.fd = segment.fd, -1
        os.close(fd)
        self._budget.release(segment.owner, segment.nbytes)
        self._count_out(segment.owner, segment.nbytes)
        self._on_gone(segment.memory_id)

    def _count_in(self, owner: str, size: int) -> None:
        with self._lock:
            if self._closed:
                raise _draining_error()
            if size > self.max_bytes:
                raise CallError(
                    Reason.CALL_TOO_LARGE,
                    f"a segment of {size} bytes was asked for and one client's may have {self.max_bytes} together; ask "
                    "for a smaller one, or start the server with a larger --max-segment-bytes",
                    field="size_bytes",
                    metadata={"bytes": str(size), "limit": str(self.max_bytes)},
                )
            own, any_ = Reason.QUOTA_EXCEEDED, Reason.SERVER_BUSY
            for reason, used, more, limit, what in (
                (own, self._owner_bytes[owner], size, self.max_bytes, "bytes in this client's segments"),
                (own, self._owner_count[owner], 1, MAX_OWNER_SEGMENTS, "segments of this client"),
                (any_, self.count, 1, MAX_SEGMENTS, "segments in all"),
            ):
                if used + more > limit:
                    raise CallError(
                        reason,
                        f"there are {used} {what} already, of {limit} that there may be, and {more} more were asked "
                        "for; send the arrays as a stream, or close a segment",
                        field="size_bytes",
                        metadata={"limit": what, "used": str(used), "allowed": str(limit)},
                    )
            self._count(owner, 1, size)

    def _count_out(self, owner: str, size: int) -> None:
        with self._lock:
            self._count(owner, -1, -size)

    def _count(self, owner: str, number: int, nbytes: int) -> None:
        self.count += number
        self.nbytes += nbytes
        self._owner_count[owner] += number
        self._owner_bytes[owner] += nbytes
        if not self._owner_count[owner]:
            del self._owner_count[owner], self._owner_bytes[owner]


def _sealed_file(nbytes: int, check: Callable[[], None]) -> int:
    """A memory file whose pages are all there: a sparse one that cannot be filled kills whoever touches it."""
    fd = os.memfd_create("shardcall-segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        memory = map_file(fd, nbytes, populate=False)
        for begin in range(0, nbytes, _STEP_BYTES):
            check()
            make_present(memory, fd, begin, min(begin + _STEP_BYTES, nbytes))
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_range(segment: ServerSegment, offset: int, nbytes: int, field: str) -> None:
    if offset % ALIGNMENT_BYTES:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field} begins at byte {offset} of its segment; begin at a multiple of {ALIGNMENT_BYTES}",
            field=field,
            metadata={"offset": str(offset)},
        )
    if offset < 0 or nbytes < 0 or offset + nbytes > segment.nbytes:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field} has {nbytes} bytes from byte {offset} on, and its segment has {segment.nbytes}; place it inside, "
            "or send it as a stream",
            field=field,
            metadata={"offset": str(offset), "bytes": str(nbytes), "segment_bytes": str(segment.nbytes)},
        )


def _draining_error() -> CallError:
    return CallError(Reason.SERVER_DRAINING, "the server is shutting down and makes no more segments; use another")
