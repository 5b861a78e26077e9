"""The memory of one call, shared with the mesh worker."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from shardcall_server.errors import CallError, Reason

ALIGNMENT_BYTES = 64
"""XLA aliases host memory that begins at a multiple of this, and copies other memory."""

_RESERVE_BYTES = 32 << 20


def aligned(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class MemoryBudget:
    """The bytes that the regions of all calls may hold together.

    Args:
        limit_bytes: the most.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """What is taken now."""
        return self._used_bytes

    def take(self, nbytes: int) -> None:
        """Takes bytes.

        Raises:
            CallError: other calls hold too much at present.
        """
        with self._lock:
            if self._used_bytes + nbytes > self.limit_bytes:
                raise CallError(
                    Reason.SERVER_BUSY,
                    f"this call needs {nbytes} bytes, and calls at work hold {self._used_bytes} of the "
                    f"server's {self.limit_bytes}; repeat it when they are done",
                    field="operands",
                    metadata={"limit": "max_bytes_in_flight"},
                )
            self._used_bytes += nbytes

    def give_back(self, nbytes: int) -> None:
        """Gives bytes back."""
        with self._lock:
            self._used_bytes -= nbytes


class Region:
    """A memory file of a call's own, mapped here and by the worker; gone with its last user.

    Memory is reserved, and counted against the budget, only as far as bytes have come: what a sender merely
    claims costs nothing. It is reserved for real, since a sparse file that cannot be filled kills whoever
    touches it.

    Args:
        nbytes: its size, 1 or more.
        budget: what it counts against.
    """

    def __init__(self, nbytes: int, budget: MemoryBudget) -> None:
        self._budget = budget
        self._reserved_bytes = 0
        self._users = 1
        self._lock = threading.Lock()
        self.nbytes = nbytes
        with _memory_errors(nbytes):
            self.fd = os.memfd_create("shardcall-call", os.MFD_CLOEXEC)
            try:
                os.ftruncate(self.fd, nbytes)
                self.bytes = np.frombuffer(mmap.mmap(self.fd, nbytes), np.uint8)
            except BaseException:
                os.close(self.fd)
                raise

    def reserve(self, end: int, check: Callable[[], None]) -> None:
        """Makes sure that there is memory for the bytes below ``end``.

        Args:
            end: a byte of the region, or its size.
            check: called before every step; raises if the call has ended.

        Raises:
            CallError: other calls hold too much, or the host has none left.
        """
        while self._reserved_bytes < end:
            check()
            step = min(_RESERVE_BYTES, self.nbytes - self._reserved_bytes)
            self._budget.take(step)
            try:
                with _memory_errors(self.nbytes):
                    os.posix_fallocate(self.fd, self._reserved_bytes, step)
            except BaseException:
                self._budget.give_back(step)
                raise
            self._reserved_bytes += step

    def hold(self) -> None:
        """Adds a user; each user closes the region once."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Lets go of it; with its last user the memory goes, but for a mapping that the worker still has."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        os.close(self.fd)
        del self.bytes  # the mapping goes with the last view of it
        self._budget.give_back(self._reserved_bytes)


@contextmanager
def _memory_errors(nbytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOMEM, errno.ENOSPC}:
            raise CallError(
                Reason.OUT_OF_HOST_MEMORY,
                f"the server's host has no memory for the {nbytes} bytes of this call; repeat it later, or split "
                "the work",
                field="operands",
            ) from error
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise CallError(
                Reason.SERVER_BUSY, "the server has no file descriptors left at present; repeat the call later"
            ) from error
        raise
