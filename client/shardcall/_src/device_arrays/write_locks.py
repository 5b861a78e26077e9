"""The locks of writes to arrays."""

from __future__ import annotations

import threading

from shardcall_core.locks import rlock
from shardcall_core.wire.forks import begin_anew_in_children

_COUNT = 64


def write_lock(base: object) -> threading.RLock:
    """Returns the lock that a thread holds from the reading of an array's values to their replacement.

    Arrays share locks. A thread waits for no other lock of these while it holds one.

    Args:
        base: the base of the array.
    """
    return _locks.of(base)


class _WriteLocks:
    """The locks; in a forked child others, since a thread of the parent may hold these."""

    def __init__(self) -> None:
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Makes the locks."""
        # Each is held from the reading of the values of some arrays to their replacement.
        self._locks = [rlock("the lock of writes to an array", 5) for _ in range(_COUNT)]

    def of(self, base: object) -> threading.RLock:
        """Returns the lock of a base."""
        return self._locks[(id(base) >> 6) % _COUNT]


_locks = _WriteLocks()
