"""Counts of programs since the server's start."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from shardcall_core.locks import lock
from shardcall_server.compilation.program_store import StoreCounts
from shardcall_worker.v1 import link_pb2

_NAMES = tuple(field.name for field in fields(StoreCounts))


class StoreTotals:
    """Sums the counts of programs on disk over all workers; each worker counts from 0."""

    def __init__(self) -> None:
        self._lock = lock("the lock of the counts of programs on disk")  # guards all of these
        self._earlier = StoreCounts()
        self._epoch = 0
        self._present = StoreCounts()

    @property
    def counts(self) -> StoreCounts:
        """The counts of all workers together."""
        with self._lock:
            return _sum(self._earlier, self._present)

    def update(self, epoch: int, counts: link_pb2.ProgramStoreCounts) -> None:
        """Takes the counts of an epoch's worker; an earlier message may come later."""
        with self._lock:
            if epoch != self._epoch:
                self._earlier = _sum(self._earlier, self._present)
                self._epoch, self._present = epoch, StoreCounts()
            latest = {name: max(getattr(self._present, name), getattr(counts, name)) for name in _NAMES}
            self._present = replace(self._present, **latest)


@dataclass(eq=False)
class ProgramCounts:
    """Counts of programs, which `ProgramCompiler` changes while it holds the launch lock.

    Attributes:
        compiled: programs that were compiled.
        compiled_serving: those of them that a call may have waited for: the mesh was ready.
        from_disk: programs that were loaded from disk.
        evicted: programs that were evicted from the mesh.
        serving: whether the mesh is ready.
        disk: counts of programs on disk.
    """

    compiled: int = 0
    compiled_serving: int = 0
    from_disk: int = 0
    evicted: int = 0
    serving: bool = False
    disk: StoreTotals = field(default_factory=StoreTotals)

    def add(self, *, from_disk: bool) -> None:
        """Counts a program that the mesh has made."""
        if from_disk:
            self.from_disk += 1
        else:
            self.compiled += 1
            self.compiled_serving += self.serving


def _sum(one: StoreCounts, other: StoreCounts) -> StoreCounts:
    return StoreCounts(*(getattr(one, name) + getattr(other, name) for name in _NAMES))
