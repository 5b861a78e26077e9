"""How many bytes of the devices' memory arrays that stay and programs that run may take together."""

from __future__ import annotations

from collections.abc import Callable

from shardcall_server.errors import CallError, Reason


class DeviceBudget:
    """Counts what programs that run take, beside what arrays that stay hold. Its user holds a lock.

    What it is told of a program is the compiler's word for operands, results and what lies between.

    Args:
        limit_bytes: the most of both together; it may be another for each start of the mesh.
        resident_bytes: what arrays that stay hold.

    Attributes:
        program_bytes: what programs that run may take.
    """

    def __init__(self, limit_bytes: Callable[[], int], resident_bytes: Callable[[], int]) -> None:
        self.limit_bytes = limit_bytes
        self._resident_bytes = resident_bytes
        self.program_bytes = 0

    def check(self, nbytes: int) -> None:
        """Refuses what does not fit beside the arrays that stay, even when no program runs.

        Raises:
            CallError: OUT_OF_DEVICE_MEMORY, with the bytes that are missing.
        """
        limit, held = self.limit_bytes(), self._resident_bytes()
        missing = nbytes + held - limit
        if not nbytes or missing <= 0:
            return
        way = "delete arrays that are not needed, split" if held else "split"
        raise CallError(
            Reason.OUT_OF_DEVICE_MEMORY,
            f"this call takes {nbytes} bytes on the devices together, and arrays that stay hold {held} of the "
            f"{limit} that there are: {missing} bytes are missing; {way} the work, or start the server "
            "with a larger --max-device-bytes",
            field="operands",
            metadata={
                "limit": "max_device_bytes",
                "bytes": str(nbytes),
                "held_bytes": str(held),
                "limit_bytes": str(limit),
                "missing_bytes": str(missing),
            },
        )

    def fits(self, nbytes: int) -> bool:
        """Whether there is room now for what `check` has let pass.

        Beside no program there always is: what arrays that stay hold may change between the two, no end of a program
        would come to let in whoever waited, and the devices would say so themselves.
        """
        return (
            not nbytes
            or not self.program_bytes
            or nbytes + self.program_bytes + self._resident_bytes() <= self.limit_bytes()
        )
