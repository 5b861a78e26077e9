"""The progress of long calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["upload", "queued", "compiling", "running", "download"]


@dataclass(frozen=True)
class Progress:
    """The progress of a call.

    Attributes:
        phase: "upload", "queued" (it waits for the mesh or the compiler), "compiling", "running" or "download".
        done_bytes: the bytes moved in this phase; ``total_bytes`` at its end.
        total_bytes: the bytes to be moved in this phase; 0 for phases that move none.
        elapsed_s: seconds since the phase began.
        queue_position: the position in the queue, 1 for the next; None if it is not queued.
        iteration: the iterations of a loop that have run; None unless it runs in slices and has ended one.
        iterations: the number of its iterations; None if that depends on values, or ``iteration`` is None.
        what: the function or the kernel; empty for transfers.
        operands: while it is compiled, the types of its operands, such as "float64[400,10], int64[]".
        earlier_operands: the types with which this client has had the kernel compiled before, if they differ from
            ``operands`` in sizes alone; at most the last three.
        waiting_calls: while it is compiled, the number of this caller's other calls that wait.
    """

    phase: Phase
    done_bytes: int = 0
    total_bytes: int = 0
    elapsed_s: float = 0.0
    queue_position: int | None = None
    iteration: int | None = None
    iterations: int | None = None
    what: str = ""
    operands: str = ""
    earlier_operands: tuple[str, ...] = ()
    waiting_calls: int = 0

    @property
    def share(self) -> float | None:
        """The finished share of the phase, 0 to 1; None if it is not known."""
        if self.total_bytes:
            return self.done_bytes / self.total_bytes
        if self.iteration is not None and self.iterations:
            return self.iteration / self.iterations
        return None


Listener: TypeAlias = Callable[[Progress], object]
