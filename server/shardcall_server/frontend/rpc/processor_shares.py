"""The processor time of the front end, and the share of each client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from shardcall_core.locks import check_held, lock

_BURST_S = 0.02
"""The processor time beyond its share that a client may use before it waits."""

_FREE = 1
"""The shares that nobody has: a processor that is busy all the time delays those who use little of it."""

_ACTIVE_S = 0.5
"""The time after its last work from which a client takes no share any more."""

ADVANCE_S = 0.002
"""The processor time that is counted when a wait ends: threads of one client that wait go on one after the other."""

_MAX_PAUSE_S = 1.0
_MAX_PAUSES = 10
_MANY = 64

T = TypeVar("T")


class ProcessorMeter:
    """Counts the processor time that this thread uses for one client, from its making to the end of its body.

    Args:
        share: the share of the client.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._began = time.thread_time()

    def pace(self) -> None:
        """Counts what was used since the last time; waits if the client has used too much."""
        self._count()
        self._share.wait()
        self._began += ADVANCE_S  # which the share has counted

    def paced(self, items: Iterator[T]) -> Iterator[T]:
        """Yields items, each at the client's pace."""
        while True:
            self.pace()
            try:
                item = next(items)
            except StopIteration:
                return
            yield item

    def _count(self) -> None:
        now = time.thread_time()
        self._share.spend(now - self._began)
        self._began = now

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._count()


class Share:
    """The share of one client; for `ProcessorShares`.

    Attributes:
        client: its name.
        excess_s: the processor time that it has used beyond its share, in seconds.
        used_at: when it last used any.
    """

    __slots__ = ("_shares", "client", "excess_s", "used_at")

    def __init__(self, shares: ProcessorShares, client: str) -> None:
        self._shares = shares
        self.client = client
        self.excess_s = 0.0
        self.used_at = -_ACTIVE_S

    def meter(self) -> ProcessorMeter:
        """Returns what counts the processor time of this thread for the client."""
        return ProcessorMeter(self)

    def spend(self, seconds: float) -> None:
        """Counts processor time that was used for the client."""
        self._shares.spend(self, seconds)

    def pause_s(self) -> float:
        """Returns for how long nothing more of the client is to be begun; 0 unless it has used too much."""
        return self._shares.pause_s(self)

    def wait(self) -> None:
        """Waits as long as nothing more of the client is to be begun; counts `ADVANCE_S` of what is begun then."""
        for _ in range(_MAX_PAUSES):
            if not (pause_s := self._shares.pause_s(self)):
                break
            self._shares.sleep(pause_s)
        self.spend(ADVANCE_S)


class ProcessorShares:
    """Shares the processor time of the front end equally between the clients that use it.

    One thread at a time runs Python there, so all clients together have one second of it in each. What a client has
    used is measured where its work is done, and whoever has used more than his share waits before more of his frames
    and requests are read. A client that is alone does not wait.

    Args:
        now: the clock.
        sleep: waits for seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        self._now = now
        self.sleep = sleep
        self._lock = lock("the lock of the processor shares")  # guards the shares
        self._by_client: dict[str, Share] = {}
        self._counted_at = -_ACTIVE_S
        self._active = 1

    def of(self, client: str) -> Share:
        """Returns the share of a client: a principal, or a connection without authentication."""
        share = self._by_client.get(client)
        if share is None:
            with self._lock:
                now = self._now()
                if len(self._by_client) >= _MANY:
                    idle = [name for name, other in self._by_client.items() if now - other.used_at > _MAX_PAUSE_S]
                    for name in idle:
                        del self._by_client[name]
                share = self._by_client.setdefault(client, Share(self, client))
        return share

    def spend(self, share: Share, seconds: float) -> None:
        """As `Share.spend`."""
        with self._lock:
            self._by_client.setdefault(share.client, share)  # it may have been idle
            self._pass_time(share)
            share.excess_s += seconds

    def pause_s(self, share: Share) -> float:
        """As `Share.pause_s`."""
        if share.excess_s <= _BURST_S:
            return 0.0
        with self._lock:
            parts = self._pass_time(share)
            return min(_MAX_PAUSE_S, max(0.0, (share.excess_s - _BURST_S) * parts))

    def _pass_time(self, share: Share) -> int:
        """Grants a client its share of the time since its last work; returns the number of shares."""
        check_held(self._lock)
        now = self._now()
        passed_s, share.used_at = now - share.used_at, now
        if now - self._counted_at > _ACTIVE_S / 10:
            self._counted_at = now
            self._active = sum(now - other.used_at < _ACTIVE_S for other in self._by_client.values())
        if self._active <= 1:
            share.excess_s = 0.0
        share.excess_s = max(0.0, share.excess_s - passed_s / (self._active + _FREE))
        return self._active + _FREE
