"""What became of the programs that the workers looked for on disk, over all starts of the mesh."""

from __future__ import annotations

import threading
from dataclasses import fields, replace

from shardcall_server.compilation.program_store import StoreCounts
from shardcall_worker.v1 import link_pb2

_NAMES = tuple(field.name for field in fields(StoreCounts))


class DiskUse:
    """Adds up what workers say: each counts from 0, and its later words hold what the earlier ones did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended = StoreCounts()
        self._epoch = 0
        self._present = StoreCounts()

    @property
    def counts(self) -> StoreCounts:
        """The counts of all workers together."""
        with self._lock:
            return _sum(self._ended, self._present)

    def note(self, epoch: int, told: link_pb2.ProgramStoreCounts) -> None:
        """Takes down what the worker of an epoch says; what it said later may come first."""
        with self._lock:
            if epoch != self._epoch:
                self._ended = _sum(self._ended, self._present)
                self._epoch, self._present = epoch, StoreCounts()
            latest = {name: max(getattr(self._present, name), getattr(told, name)) for name in _NAMES}
            self._present = replace(self._present, **latest)


def _sum(one: StoreCounts, other: StoreCounts) -> StoreCounts:
    return StoreCounts(*(getattr(one, name) + getattr(other, name) for name in _NAMES))
