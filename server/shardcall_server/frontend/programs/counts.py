"""Counts of programs since the server's start."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardcall_server.frontend.programs.disk_use import DiskUse


@dataclass(eq=False)
class ProgramCounts:
    """Each number grows under the launch lock of its session.

    Attributes:
        compiled: programs that were compiled.
        compiled_serving: those of them that a call may have waited for: the mesh was ready.
        from_disk: programs that were found compiled on disk.
        evicted: programs that were evicted from the mesh.
        serving: whether the mesh is ready.
        disk: outcomes of the workers' look-ups on disk.
    """

    compiled: int = 0
    compiled_serving: int = 0
    from_disk: int = 0
    evicted: int = 0
    serving: bool = False
    disk: DiskUse = field(default_factory=DiskUse)

    def admitted(self, *, from_disk: bool) -> None:
        """Counts a program that the mesh has made."""
        if from_disk:
            self.from_disk += 1
        else:
            self.compiled += 1
            self.compiled_serving += self.serving
