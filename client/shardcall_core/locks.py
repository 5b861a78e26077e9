"""Locks whose holders and order are checked in tests; `docs/threads.md` lists them.

With ``SHARDCALL_DEBUG_LOCKS=1`` in the environment the locks made here know the thread that holds them. Without it
they are those of `threading`, and `check_held` does nothing.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import cast

VARIABLE = "SHARDCALL_DEBUG_LOCKS"

LEAF = 100
"""The order of locks under which no other lock of this module is taken."""


class LockError(AssertionError):
    """A lock was taken out of order, taken twice, or not held by a thread that must hold it."""


class _HeldLocks(threading.local):
    """The checked locks that one thread holds; a lock that it has taken twice is listed twice."""

    def __init__(self) -> None:
        self.held: list[CheckedLock] = []


class CheckedLock:
    """A lock that knows whether the present thread holds it; made by `lock` and `rlock`.

    Args:
        name: its name in errors.
        order: a thread that waits for it holds only locks of lower orders.
        is_reentrant: whether a thread that holds it may take it again.
    """

    def __init__(self, name: str, order: float, *, is_reentrant: bool) -> None:
        self.name = name
        self.order = order
        self._is_reentrant = is_reentrant
        self._lock = threading.RLock() if is_reentrant else threading.Lock()

    @property
    def is_held(self) -> bool:
        """True if this thread holds the lock."""
        return self in _thread.held

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Takes the lock, as `threading.Lock` does.

        Raises:
            LockError: this thread would wait while it holds a lock that must not come before this one.
        """
        if blocking and timeout < 0:  # a wait with a timeout cannot deadlock
            self._check_order()
        is_taken = self._lock.acquire(blocking, timeout)
        if is_taken:
            _thread.held.append(self)
        return is_taken

    def release(self) -> None:
        """Releases the lock."""
        if self.is_held:  # unless the process was forked since
            _thread.held.remove(self)
        self._lock.release()

    def _check_order(self) -> None:
        if self.is_held:
            if not self._is_reentrant:
                raise LockError(f"{self.name} is taken by the thread that holds it")
            return
        for other in _thread.held:
            if other.order >= self.order:
                raise LockError(f"{self.name} (order {self.order}) is taken under {other.name} (order {other.order})")

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    # Required by `threading.Condition`.

    def _is_owned(self) -> bool:
        return self.is_held

    def _release_save(self) -> int:
        others = [other.name for other in _thread.held if other is not self]
        if others:
            raise LockError(f"a thread waits for a change of what {self.name} guards under {', '.join(others)}")
        count = len(_thread.held)
        for _ in range(count):
            self.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        for _ in range(count):
            self.acquire()


_thread = _HeldLocks()


def _forget_held() -> None:
    _thread.held = []  # a child replaces locks that its parent may have held


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_held)


def lock(name: str, order: float = LEAF) -> threading.Lock:
    """Returns a new lock.

    Args:
        name: its name in errors.
        order: a thread that waits for it holds only locks of lower orders.
    """
    return cast(threading.Lock, CheckedLock(name, order, is_reentrant=False)) if is_checking() else threading.Lock()


def rlock(name: str, order: float = LEAF) -> threading.RLock:
    """Returns a new lock that the thread that holds it may take again; arguments as for `lock`."""
    return cast(threading.RLock, CheckedLock(name, order, is_reentrant=True)) if is_checking() else threading.RLock()


def is_checking() -> bool:
    """Returns True if the locks that are made now are checked."""
    return os.environ.get(VARIABLE) == "1"


def check_held(one: object) -> None:
    """Checks that this thread holds a lock of this module, for functions whose callers must hold it.

    Raises:
        LockError: it does not.
    """
    if type(one) is CheckedLock and not one.is_held:
        raise LockError(f"{one.name} must be held here")
