"""A pool of memory regions for the arrays of calls, shared with the mesh worker.

Touching fresh memory costs several times as much as copying into it. A call's region is therefore a memory file of its
own, of huge pages if the kernel has them, which returns to the pool when its last user releases it. For 256 MiB, fresh
memory costs 50 to 70 ms of page faults, and a region of the pool 0.5 ms.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import lock
from shardcall_core.types.sizes import exact
from shardcall_core.wire.shared_memory import HUGE_PAGE_BYTES, make_present, map_file, round_up
from shardcall_server.frontend.memory.budget import MemoryBudget

ALIGNMENT_BYTES = 64
"""XLA aliases host memory that begins at a multiple of this; it copies other memory."""

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Reading a mapping beyond the end of a file that has shrunk kills the process."""

_STEP_BYTES = 32 << 20
_NO_BYTES = np.empty(0, np.uint8)


class MemoryFile(Protocol):
    """A memory file that the worker can map."""

    memory_id: int
    fd: int
    nbytes: int

    def view(self, begin: int, nbytes: int) -> np.ndarray:
        """Returns a view of a range of bytes."""


@dataclass(eq=False)
class _Block:
    """A memory file and this process's mapping of it.

    Attributes:
        memory_id: the id of the file in commands to the worker.
        memory: uint8[nbytes].
        present_bytes: the size of the part that has pages, from the beginning.
        generation: the number of times that it was acquired.
        returned: the moment of its last return, on the monotonic clock.
    """

    memory_id: int
    fd: int
    nbytes: int
    memory: np.ndarray
    present_bytes: int = 0
    generation: int = 0
    returned: float = 0.0


class Region:
    """A block that one call has acquired, for one generation of the block.

    Memory is allocated, and counted against the budget, only as far as bytes arrive: a size that a sender merely
    announces costs no more than the idle memory that the block has already.
    """

    def __init__(self, arena: Arena, block: _Block, owner: str) -> None:
        self._arena = arena
        self._block = block
        self._generation = block.generation
        self._owner = owner
        self._users = 1
        self._lock = threading.Lock()  # guards `_users`
        self.memory_id, self.fd, self.nbytes = block.memory_id, block.fd, block.nbytes

    def view(self, begin: int, nbytes: int) -> np.ndarray:
        """Returns a view of a range of bytes.

        Raises:
            RuntimeError: the region has returned to the pool, where another call may acquire it.
        """
        if not self._users or self._generation != self._block.generation:
            raise RuntimeError("a region was used after its last user had released it")
        return self._block.memory[begin : begin + nbytes]

    def reserve(self, end: int, check: Callable[[], None]) -> None:
        """Allocates the memory of the bytes below ``end``.

        Args:
            end: an offset in bytes.
            check: called before every step; raises if the call has ended.

        Raises:
            CallError: other calls hold too much memory, or the host has none left.
        """
        while self._block.present_bytes < end:
            check()
            self._arena.extend(self._block, self._owner)

    def acquire(self) -> None:
        """Adds a user; each user releases the region once."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Removes a user; after the last one the region returns to the pool."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        self._arena.release(self._block, self._owner)


@dataclass
class Arena:
    """The pool of regions: by size class, last returned first.

    Args:
        budget: limits the regions in use; idle regions are dropped before a call is refused.
        next_id: returns an id that is unique among the memory files of this process.
        on_gone: called with the id of a file that is no longer used, so that the worker unmaps it.
    """

    budget: MemoryBudget
    next_id: Callable[[], int]
    on_gone: Callable[[int], None]
    in_use: int = field(default=0, init=False)
    idle_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._idle: dict[int, list[_Block]] = defaultdict(list)
        self._lock = lock("the lock of the pool of regions")  # guards the idle blocks and the counts
        self.budget.idle_bytes = lambda: self.idle_bytes
        self.budget.drop_idle = self.drop

    def acquire(self, owner: str, nbytes: int) -> Region:
        """Returns a region of at least ``nbytes`` bytes, which must be 1 or more.

        It contains bytes of earlier calls: its user must write every byte before reading it.

        Raises:
            CallError: other calls hold too much memory, or the host has no memory or descriptors left.
        """
        size = size_class(nbytes)
        block = self._pop(size)
        if block is None:
            with memory_errors(nbytes):
                block = self._make(size)
        try:
            self.budget.reserve(owner, block.present_bytes)
        except BaseException:
            self._push(block)
            raise
        with self._lock:
            self.in_use += 1
        block.generation += 1
        return Region(self, block, owner)

    def extend(self, block: _Block, owner: str) -> None:
        """Allocates the next step of a block."""
        begin = block.present_bytes
        end = min(begin + _STEP_BYTES, block.nbytes)
        self.budget.reserve(owner, end - begin)
        try:
            with memory_errors(block.nbytes):
                make_present(block.memory, block.fd, begin, end)
        except BaseException:
            self.budget.release(owner, end - begin)
            raise
        block.present_bytes = end

    def release(self, block: _Block, owner: str) -> None:
        """Returns a block to the pool."""
        self.budget.release(owner, block.present_bytes)
        with self._lock:
            self.in_use -= 1
        self._push(block)

    def drop(self, nbytes: int) -> None:
        """Frees at least ``nbytes`` idle bytes, longest idle first, or all of them if there are fewer."""
        while nbytes > 0 and (block := self._pop_oldest()) is not None:
            nbytes -= block.present_bytes
            self._free(block)

    def drop_unused_since(self, moment: float) -> None:
        """Frees the blocks that have been idle since a moment of the monotonic clock."""
        while (block := self._pop_oldest(moment)) is not None:
            self._free(block)

    def _make(self, size: int) -> _Block:
        try:
            return _new_block(size, self.next_id())
        except OSError:  # idle blocks may hold the last descriptors or addresses
            self.drop(self.idle_bytes)
            return _new_block(size, self.next_id())

    def _pop(self, size: int) -> _Block | None:
        with self._lock:
            blocks = self._idle.get(size)
            if not blocks:
                return None
            block = blocks.pop()
            self.idle_bytes -= block.present_bytes
            return block

    def _pop_oldest(self, before: float = float("inf")) -> _Block | None:
        with self._lock:
            oldest = min((blocks for blocks in self._idle.values() if blocks), key=_returned, default=None)
            if oldest is None or oldest[0].returned > before:
                return None
            block = oldest.pop(0)
            self.idle_bytes -= block.present_bytes
            return block

    def _push(self, block: _Block) -> None:
        if not block.present_bytes:
            self._free(block)
            return
        block.returned = time.monotonic()
        with self._lock:
            self._idle[block.nbytes].append(block)
            self.idle_bytes += block.present_bytes

    def _free(self, block: _Block) -> None:
        os.close(block.fd)
        block.memory = _NO_BYTES  # unmaps the file even if the block is still referenced
        self.on_gone(block.memory_id)


def size_class(nbytes: int) -> int:
    """Returns the size of the region for ``nbytes`` bytes: at most an eighth more, or 2 MiB more."""
    step = max(HUGE_PAGE_BYTES, (1 << (nbytes.bit_length() - 1)) // 8)
    return round_up(nbytes, step)


def aligned(nbytes: int) -> int:
    """Returns the next multiple of `ALIGNMENT_BYTES`."""
    return round_up(nbytes, ALIGNMENT_BYTES)


def _returned(blocks: list[_Block]) -> float:
    return blocks[0].returned


def _new_block(nbytes: int, memory_id: int) -> _Block:
    fd = os.memfd_create("shardcall-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
        return _Block(memory_id, fd, nbytes, map_file(fd, nbytes, populate=False))
    except BaseException:
        os.close(fd)
        raise


@contextmanager
def memory_errors(nbytes: int) -> Iterator[None]:
    """Converts the system's errors about missing memory or descriptors to a `CallError`."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOMEM, errno.ENOSPC}:
            raise CallError(
                Reason.OUT_OF_HOST_MEMORY,
                f"the server's host has no memory for the {exact(nbytes)} of this call; repeat it later, or divide it "
                "into smaller calls",
                field="operands",
            ) from error
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise CallError(
                Reason.SERVER_BUSY, "the server has no file descriptors left at present; repeat the call later"
            ) from error
        raise
