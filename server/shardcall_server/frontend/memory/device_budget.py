"""A limit on the device memory of resident arrays and running programs together."""

from __future__ import annotations

from collections.abc import Callable

from shardcall_core.call_error import CallError, Reason
from shardcall_core.types.sizes import exact


class DeviceBudget:
    """Counts the device memory of running programs, beside that of resident arrays. Not thread-safe.

    The memory of a program is the compiler's estimate for operands, results and temporaries.

    Args:
        limit_bytes: returns the limit of both together, which may change when the mesh restarts.
        resident_bytes: returns the bytes of resident arrays.

    Attributes:
        program_bytes: the bytes of running programs.
    """

    def __init__(self, limit_bytes: Callable[[], int], resident_bytes: Callable[[], int]) -> None:
        self.limit_bytes = limit_bytes
        self._resident_bytes = resident_bytes
        self.program_bytes = 0

    def check(self, nbytes: int) -> None:
        """Refuses a program that does not fit beside the resident arrays even if no other program runs.

        Raises:
            CallError: OUT_OF_DEVICE_MEMORY, with the number of missing bytes.
        """
        if not nbytes or nbytes + self._resident_bytes() <= self.limit_bytes():
            return
        limit, held = self.limit_bytes(), self._resident_bytes()
        missing = nbytes + held - limit
        delete = "delete arrays that are not needed, " if held else ""
        raise CallError(
            Reason.OUT_OF_DEVICE_MEMORY,
            f"this call takes {exact(nbytes)} on all devices together, and resident arrays hold {exact(held)} of the "
            f"{exact(limit)} allowed: {exact(missing)} are missing; {delete}divide the work into smaller calls, or "
            "start the "
            "server with a larger --max-device-bytes",
            field="operands",
            metadata={
                "limit": "max_device_bytes",
                "bytes": str(nbytes),
                "held_bytes": str(held),
                "limit_bytes": str(limit),
                "missing_bytes": str(missing),
            },
        )

    def add(self, nbytes: int) -> bool:
        """Counts a program if it may run now; returns whether it may.

        It may whenever no other program runs: none would end and let the call run later.

        Raises:
            CallError: as `check`.
        """
        used = self.program_bytes
        if nbytes and nbytes + used + self._resident_bytes() > self.limit_bytes():
            self.check(nbytes)
            if used:
                return False
        self.program_bytes = used + nbytes
        return True
