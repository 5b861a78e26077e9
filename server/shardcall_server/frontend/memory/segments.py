"""Memory files that the server shares with clients on its host, each with one client only.

A client may write to its segment at any time, which can affect only its own results: the front end makes no decision by
the contents of a segment. It maps a segment only to send its bytes to workers on other hosts.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections import Counter
from collections.abc import Callable

import numpy as np

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import lock
from shardcall_core.types.sizes import exact
from shardcall_core.wire.shared_memory import HUGE_PAGE_BYTES, make_present, map_file, round_up
from shardcall_server.frontend.memory.arena import ALIGNMENT_BYTES, SEALS, memory_errors
from shardcall_server.frontend.memory.budget import MemoryBudget

SEGMENT_ID_BYTES = 16
MAX_SEGMENTS = 256
"""Each segment takes two descriptors, for its file and its connection; a common limit of processes is 1024."""

MAX_OWNER_SEGMENTS = 128
_STEP_BYTES = 32 << 20
_SHOWN_DIGITS = 8  # an id gives access to its segment, so no message contains all of it


class ServerSegment:
    """A memory file shared with one client, sealed against shrinking, growing and further seals.

    Its users are its lease and the executions that read or write it. The release of the lease removes it from the
    table, so that no further call can use it; the file is closed after the last user.

    Attributes:
        segment_id: its random name for clients.
        memory_id: the id of the file in commands to the worker.
        fd: the file; -1 once it is closed.
        owner: the name whose budget it counts against.
        principal: the only principal that may use it; empty without authentication.
        on_used: called when a call uses it, and when its lease is released.
    """

    def __init__(self, table: SegmentTable, memory_id: int, fd: int, nbytes: int, owner: str, principal: str) -> None:
        self.segment_id = secrets.token_bytes(SEGMENT_ID_BYTES)
        self.memory_id = memory_id
        self.fd = fd
        self.nbytes = nbytes
        self.owner = owner
        self.principal = principal
        self.users = 1
        self.on_used: Callable[[], object] = lambda: None
        self._table = table
        self._memory: np.ndarray | None = None

    def view(self, begin: int, nbytes: int) -> np.ndarray:
        """Returns a view of a range of bytes, for workers that cannot map the file; the first call maps it."""
        if self._memory is None:
            self._memory = map_file(self.fd, self.nbytes, populate=False)
        return self._memory[begin : begin + nbytes]

    def acquire(self) -> None:
        """Adds a user; the segment must have one already."""
        self._table.add_user(self)

    def release(self) -> None:
        """Removes a user."""
        self._table.remove_user(self)

    def release_lease(self) -> None:
        """Releases the lease, once: no further call can use the segment."""
        self._table.release_lease(self)


class SegmentTable:
    """The segments of a server, limited in number and by owner.

    Args:
        budget: the memory budget, which counts the full size of a segment when it is opened.
        max_bytes: the limit of one owner's segments together; rounded down to a multiple of the huge page size.
        next_id: returns an id that is unique among the memory files of this process.
        on_gone: called with the memory id of a file that was closed, so that the worker unmaps it.

    Attributes:
        max_bytes: the limit in use, a multiple of the huge page size.
        count: the number of segments, including those being opened and those that outlast their lease.
        nbytes: their total size.
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
        self._lock = lock("the lock of the segments")  # guards the tables, the counts and each segment's users
        self._leased: dict[bytes, ServerSegment] = {}
        self._owner_bytes: Counter[str] = Counter()
        self._owner_count: Counter[str] = Counter()
        self._closed = False

    @property
    def leases(self) -> int:
        """The number of leased segments."""
        return len(self._leased)

    def open(self, owner: str, nbytes: int, check: Callable[[], None], principal: str = "") -> ServerSegment:
        """Opens a segment; the caller holds its lease.

        Args:
            owner: the name whose budget it counts against.
            nbytes: its size, at least 1; rounded up to a multiple of the huge page size.
            check: called before every step; raises if the call has ended.
            principal: the only principal that may use it.

        Raises:
            CallError: a limit is exceeded, or the host has no memory or descriptors left.
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
        if closed:  # while it was opened
            segment.release_lease()
            raise _drain_error()
        return segment

    def acquire(
        self, segment_id: bytes, offset: int, nbytes: int, field: str = "segment", principal: str = ""
    ) -> ServerSegment:
        """Returns the segment of an array with a user added, who must release it once.

        Args:
            segment_id: as the client sent it.
            offset: the array's offset in bytes.
            field: the field of the request, for the error message.
            principal: the caller; the segments of others are treated as missing.

        Raises:
            CallError: there is no such segment, or the range is not inside it or not aligned.
        """
        if len(segment_id) != SEGMENT_ID_BYTES:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"{field} has a segment_id of {len(segment_id)} bytes; send the {SEGMENT_ID_BYTES} bytes that "
                "OpenSegment returned",
                field=field,
            )
        with self._lock:
            segment = self._leased.get(segment_id)
            if segment is None or segment.principal != principal:
                raise CallError(
                    Reason.SEGMENT_NOT_FOUND,
                    f"{field} names segment {segment_id.hex()[:_SHOWN_DIGITS]}…, which does not exist or was closed; "
                    "send the arrays as a stream, or open another segment",
                    field=field,
                )
            _check_range(segment, offset, nbytes, field)
            segment.users += 1
        segment.on_used()
        return segment

    def close(self) -> None:
        """Releases every lease and refuses new segments; segments in use are closed when their executions end."""
        with self._lock:
            self._closed = True
            leased = list(self._leased.values())
        for segment in leased:
            segment.release_lease()

    def add_user(self, segment: ServerSegment) -> None:
        """Adds a user; see `ServerSegment.acquire`."""
        with self._lock:
            if not segment.users:
                raise RuntimeError("a segment was used after its last user had released it")
            segment.users += 1

    def release_lease(self, segment: ServerSegment) -> None:
        """Releases the lease; see `ServerSegment.release_lease`."""
        with self._lock:
            ended = self._leased.pop(segment.segment_id, None) is None
        if not ended:
            segment.on_used()
            self.remove_user(segment)

    def remove_user(self, segment: ServerSegment) -> None:
        """Removes a user; see `ServerSegment.release`."""
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
                raise _drain_error()
            if size > self.max_bytes:
                raise CallError(
                    Reason.CALL_TOO_LARGE,
                    f"a segment of {exact(size)} was requested, and the segments of one client may have "
                    f"{exact(self.max_bytes)}; request less, or start the server with a larger --max-segment-bytes",
                    field="size_bytes",
                    metadata={"bytes": str(size), "limit": str(self.max_bytes)},
                )
            quota, busy = Reason.QUOTA_EXCEEDED, Reason.SERVER_BUSY
            for reason, used, more, limit, what in (
                (quota, self._owner_bytes[owner], size, self.max_bytes, "bytes in this client's segments"),
                (quota, self._owner_count[owner], 1, MAX_OWNER_SEGMENTS, "segments of this client"),
                (busy, self.count, 1, MAX_SEGMENTS, "segments in total"),
            ):
                if used + more > limit:
                    raise CallError(
                        reason,
                        f"there are {used} of {limit} allowed {what}, and {more} more were requested; send the arrays "
                        "as a stream, or close a segment",
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
    """Returns a memory file with all pages allocated: touching a sparse file without memory kills the process."""
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
            f"{field} has {nbytes} bytes at offset {offset}, and its segment has {segment.nbytes} bytes; put it inside "
            "the segment, or send it as a stream",
            field=field,
            metadata={"offset": str(offset), "bytes": str(nbytes), "segment_bytes": str(segment.nbytes)},
        )


def _drain_error() -> CallError:
    return CallError(Reason.SERVER_DRAINING, "the server is shutting down and opens no more segments; use another")
