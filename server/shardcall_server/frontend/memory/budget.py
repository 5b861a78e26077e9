"""Limits on the memory that the front end allocates, in total and for one owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import rlock
from shardcall_core.types.sizes import exact


class MemoryBudget:
    """The bytes of regions and segments, limited in total and for one owner.

    An owner is a principal, or a connection if the server does not authenticate: a client with many connections then
    has many budgets, but the total limit holds for all of them.

    Args:
        limit_bytes: the limit for all owners together.
        owner_limit_bytes: the limit for one owner.
    """

    def __init__(self, limit_bytes: int, owner_limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.owner_limit_bytes = owner_limit_bytes
        self.used_bytes = 0
        self.high_water_bytes = 0
        self.idle_bytes: Callable[[], int] = lambda: 0
        """Returns the bytes of idle regions, which are freed before a call is refused."""
        self.drop_idle: Callable[[int], None] = _drop_nothing
        """Frees at least a number of idle bytes, or all of them if there are fewer."""
        self._by_owner: Counter[str] = Counter()
        self._waiting: set[Callable[[], None]] = set()
        # Guards all of these. Idle regions are freed under it, which takes the pool's lock and the launch lock.
        self._lock = rlock("the lock of the memory budget", 10)

    def reserve(self, owner: str, nbytes: int) -> None:
        """Reserves bytes for an owner.

        Raises:
            CallError: SERVER_BUSY if all owners, QUOTA_EXCEEDED if this owner, would hold more than the limit.
        """
        with self._lock:
            for reason, whose, used, limit, setting in (
                (Reason.QUOTA_EXCEEDED, *self._of_owner(owner)),
                (Reason.SERVER_BUSY, "calls and segments", self.used_bytes, self.limit_bytes, _TOTAL),
            ):
                if used + nbytes > limit:
                    raise CallError(
                        reason,
                        f"the call needs {exact(nbytes)} more, and {whose} hold {exact(used)} of {exact(limit)} "
                        "allowed "
                        f"(all clients: {exact(self.used_bytes)} of {exact(self.limit_bytes)}); "
                        "repeat the call when some are done, or start the server with a larger "
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
        """Releases bytes that were reserved for an owner."""
        with self._lock:
            self.used_bytes -= nbytes
            self._by_owner[owner] -= nbytes
            if not self._by_owner[owner]:
                del self._by_owner[owner]
            waiting, self._waiting = self._waiting, set()
        for callback in waiting:
            callback()

    def call_when_released(self, callback: Callable[[], None]) -> None:
        """Calls back once, when bytes have been released, on the thread that does, which may hold locks."""
        with self._lock:
            self._waiting.add(callback)


_TOTAL, _BY_OWNER = "max_bytes_in_flight", "max_bytes_per_client"


def _drop_nothing(nbytes: int) -> None:
    pass
