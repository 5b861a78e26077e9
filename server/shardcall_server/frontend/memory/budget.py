"""How much memory the front end may hand out, in all and to one owner."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from shardcall_server.errors import CallError, Reason


class MemoryBudget:
    """The bytes that regions and segments may hold together, and those of one owner.

    An owner is a principal, or a connection where nobody is asked who they are: whoever opens many then has many
    budgets, and all of them the server's one limit.

    Args:
        limit_bytes: the most in all.
        owner_limit_bytes: the most of one owner.
    """

    def __init__(self, limit_bytes: int, owner_limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.owner_limit_bytes = owner_limit_bytes
        self.used_bytes = 0
        self.high_water_bytes = 0
        self.idle_bytes: Callable[[], int] = lambda: 0
        """What is kept warm for later calls; it goes before anybody is refused."""
        self.drop_idle: Callable[[int], None] = _drop_nothing
        """Lets go of at least so many idle bytes, or of all."""
        self._by_owner: Counter[str] = Counter()
        self._lock = threading.RLock()

    def reserve(self, owner: str, nbytes: int) -> None:
        """Takes bytes for an owner.

        Raises:
            CallError: SERVER_BUSY, QUOTA_EXCEEDED: others, or this owner's other calls, hold too much at present.
        """
        with self._lock:
            for reason, whose, used, limit, setting in (
                (Reason.QUOTA_EXCEEDED, *self._of_owner(owner)),
                (Reason.SERVER_BUSY, "calls at work and segments", self.used_bytes, self.limit_bytes, _IN_ALL),
            ):
                if used + nbytes > limit:
                    raise CallError(
                        reason,
                        f"this needs {nbytes} bytes more, and {whose} hold {used} of the {limit} that they may "
                        f"(of all clients: {self.used_bytes} of {self.limit_bytes}); "
                        "repeat it when some are done, or start the server with a larger "
                        f"--{setting.replace('_', '-')}",
                        field="operands",
                        metadata={"limit": setting},
                    )
            excess = self.used_bytes + nbytes + self.idle_bytes() - self.limit_bytes
            if excess > 0:
                self.drop_idle(excess)
            self._by_owner[owner] += nbytes
            self.used_bytes += nbytes
            self.high_water_bytes = max(self.high_water_bytes, self.used_bytes)

    def _of_owner(self, owner: str) -> tuple[str, int, int, str]:
        return "this client's calls and segments", self._by_owner[owner], self.owner_limit_bytes, _BY_OWNER

    def release(self, owner: str, nbytes: int) -> None:
        """Gives bytes back that were taken for an owner."""
        with self._lock:
            self.used_bytes -= nbytes
            self._by_owner[owner] -= nbytes
            if not self._by_owner[owner]:
                del self._by_owner[owner]


_IN_ALL, _BY_OWNER = "max_bytes_in_flight", "max_bytes_per_client"


def _drop_nothing(nbytes: int) -> None:
    pass
