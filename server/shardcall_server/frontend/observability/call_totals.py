"""Totals of the calls by kernel and by principal, for `shardcall top`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from dataclasses import dataclass

_MAX_NAMES = 1024  # kernels are those of the mesh, and principals have a token each


@dataclass
class Total:
    """The calls of one kernel or one principal since the server's start.

    Attributes:
        calls: the number of calls that have ended.
        failed_calls: those that failed.
        execute_s: the seconds that their programs ran on the devices.
        array_bytes: the bytes of their arrays, in messages and in shared memory.
    """

    calls: int = 0
    failed_calls: int = 0
    execute_s: float = 0.0
    array_bytes: int = 0

    def add(self, *, is_failed: bool, execute_s: float, array_bytes: int) -> None:
        """Adds a call that has ended."""
        self.calls += 1
        self.failed_calls += is_failed
        self.execute_s += execute_s
        self.array_bytes += array_bytes


Totals = Mapping[str, Total]
"""The totals by name."""


class TotalsByName:
    """Counts calls by kernel and by principal; numbers only grow.

    Args:
        max_names: the limit of kernels, and of principals, that are counted.
    """

    def __init__(self, max_names: int = _MAX_NAMES) -> None:
        self._max_names = max_names
        self._lock = threading.Lock()  # guards the totals
        self._by_kernel: dict[str, Total] = {}
        self._by_principal: dict[str, Total] = {}

    def add(self, kernel: str, principal: str, *, is_failed: bool, execute_s: float, array_bytes: int) -> None:
        """Counts a call.

        Args:
            kernel: the kernel; empty for none.
            principal: the caller; empty without authentication, which stands for all callers.
            is_failed: whether it failed.
            execute_s: the seconds that its program ran.
            array_bytes: the bytes of its arrays.
        """
        with self._lock:
            for name, totals in ((kernel or None, self._by_kernel), (principal, self._by_principal)):
                if name is not None and (name in totals or len(totals) < self._max_names):
                    total = totals.setdefault(name, Total())
                    total.add(is_failed=is_failed, execute_s=execute_s, array_bytes=array_bytes)

    def snapshot(self) -> tuple[Totals, Totals]:
        """Returns the totals by kernel, and by principal."""
        with self._lock:
            copies = ({name: dataclasses.replace(total) for name, total in totals.items()} for totals in self._both())
            by_kernel, by_principal = copies
            return by_kernel, by_principal

    def _both(self) -> tuple[dict[str, Total], dict[str, Total]]:
        return self._by_kernel, self._by_principal
