"""Resource usage of processes as counted by the kernel: memory, and processor time by thread."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_INTERVAL_S = 0.004


def pss_bytes(pids: Sequence[int]) -> int:
    """Returns the proportional set size of processes, in which each process counts its share of a shared page."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) << 10
    return total


class PeakMemory:
    """Samples the memory of processes every few milliseconds on a thread.

    Attributes:
        peak_bytes: the largest sample.
    """

    def __init__(self, pids: Sequence[int]) -> None:
        self.peak_bytes = 0
        self._pids = pids
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._end.is_set():
            self.peak_bytes = max(self.peak_bytes, pss_bytes(self._pids))
            self._end.wait(_INTERVAL_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()


def thread_seconds(pid: int) -> dict[tuple[int, str], float]:
    """Returns the processor time of each thread of a process in seconds, by id and name."""
    spent = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = "main" if task.name == str(pid) else (task / "comm").read_text().strip()
            spent[int(task.name), name] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return spent


def process_seconds(pid: int) -> float:
    """Returns the processor time of a process in seconds, including threads that have ended, to two decimals."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def difference_by_name(before: dict[tuple[int, str], float], after: dict[tuple[int, str], float]) -> Counter[str]:
    """Returns the processor time of threads between two samples, by name."""
    used: Counter[str] = Counter()
    for (tid, name), seconds in after.items():
        used[name] += seconds - before.get((tid, name), 0.0)  # type: ignore[assignment]  # a Counter of floats
    return used
