"""A history of what ran as what."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

_MAX = 256


@dataclass(frozen=True)
class TraceEntry:
    """Recorded calls that were sent together.

    Attributes:
        kernels: the names of their kernels, in order.
        results: the number of results that stay on the mesh.
        ran_as: ``"program"`` for one program, ``"call"`` for a single call, ``"calls"`` for one call after the other.
        line: the file and line of the last one.
    """

    kernels: tuple[str, ...]
    results: int
    ran_as: str
    line: str

    def __str__(self) -> str:
        names = ", ".join(self.kernels)
        return f"{self.ran_as:<8} {self.results:>7}  {names if len(names) <= 60 else names[:59] + '…':<60}  {self.line}"


class CallTrace(Sequence[TraceEntry]):
    """The latest recorded calls, oldest first; ``print`` shows a table."""

    def __init__(self, calls: Sequence[TraceEntry]) -> None:
        self._calls = tuple(calls)

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, index: int) -> TraceEntry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TraceEntry, ...]: ...
    def __getitem__(self, index: int | slice) -> TraceEntry | tuple[TraceEntry, ...]:
        return self._calls[index]

    def __iter__(self) -> Iterator[TraceEntry]:
        return iter(self._calls)

    def __repr__(self) -> str:
        head = f"{'ran as':<8} {'results':>7}  {'calls':<60}  line"
        return "\n".join([head, *map(str, self._calls)])


class TraceBuffer:
    """Keeps the latest recorded calls of a client."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Sequence[str], int, str, object]] = deque(maxlen=_MAX)

    def add(self, kernels: Sequence[str], results: int, ran_as: str, line: object) -> None:
        """Adds calls that were sent."""
        self._calls.append((kernels, results, ran_as, line))

    def trace(self) -> CallTrace:
        """Returns the calls until now."""
        return CallTrace([TraceEntry(tuple(names), count, how, str(line)) for names, count, how, line in self._calls])
