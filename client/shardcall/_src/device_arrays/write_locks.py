"""The locks of writes to arrays."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from shardcall_core.locks import rlock
from shardcall_core.wire.forks import begin_anew_in_children

_ORDER, _COUNT = 5, 2**40


class WriteLock:
    """The lock of an array and its views, from the reading of values for a write to their replacement.

    A thread that holds some takes only locks of arrays that were made later, such as those of a function that it calls.
    It may take one again. Readers do not take it.

    Attributes:
        number: the number of locks that were made before.
    """

    __slots__ = ("_lock", "_process", "number")

    _numbers = itertools.count()

    def __init__(self) -> None:
        self.number = next(self._numbers)
        self._process: object = None
        self._lock: threading.RLock | None = None

    def of_process(self) -> threading.RLock:
        """Returns the lock; in a forked child another, since a thread of the parent may hold it."""
        if self._process is not _process.key:
            with _process.lock:
                if self._process is not _process.key:
                    self._lock = rlock("the lock of writes to an array", _ORDER + self.number / _COUNT)
                    self._process = _process.key
        assert self._lock is not None
        return self._lock


def views_lock() -> threading.RLock:
    """Returns the lock under which arrays become views of others, and views arrays; nothing is waited for under it."""
    return _process.lock


class _Process:
    """The common part of the locks of this process.

    Attributes:
        key: differs from that of a process that was forked.
        lock: guards the making of the others, and which arrays are views.
    """

    def __init__(self) -> None:
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Has each lock made again."""
        self.key = object()
        self.lock = rlock("the lock of views")


_process = _Process()


@contextmanager
def writing_to(arrays: Iterable[Any]) -> Iterator[None]:
    """Keeps other threads from writing to arrays; those that are not on the mesh are left out.

    Args:
        arrays: the arrays.

    Raises:
        ValueError: for a view that NumPy does not write to.
    """
    with ExitStack() as stack:
        targets = [array for array in arrays if hasattr(type(array), "_assign")]
        for target in sorted(targets, key=lambda array: array._write_lock.number):
            stack.enter_context(target._writing())
        yield
