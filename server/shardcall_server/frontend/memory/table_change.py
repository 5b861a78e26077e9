"""Changes of the table of resident arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from shardcall_server.frontend.memory.leases import ResidentArray


# A class, since a generator-based context manager makes several more Python calls, and a call changes the table often.
class TableChange:
    """A change of the table of resident arrays, during which it is locked; every call makes some.

    Args:
        lock: the lock of the table.
        begin: called with a list, to which it may add arrays.
        on_delete: called at the end with that list, without the lock, if it is not empty.
    """

    __slots__ = ("_begin", "_gone", "_lock", "_on_delete")

    def __init__(
        self,
        lock: threading.Lock,
        begin: Callable[[list[ResidentArray]], None],
        on_delete: Callable[[Sequence[ResidentArray]], None],
    ) -> None:
        self._lock = lock
        self._begin = begin
        self._on_delete = on_delete
        self._gone: list[ResidentArray] = []

    def __enter__(self) -> list[ResidentArray]:
        self._lock.acquire()
        try:
            self._begin(self._gone)
        except BaseException:
            self._lock.release()
            raise
        return self._gone

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()
        if self._gone:
            self._on_delete(self._gone)
