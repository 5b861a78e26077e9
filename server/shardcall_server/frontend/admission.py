"""How many calls are worked on at once: in all, of one client, and of one of its connections."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.call import Call
from shardcall_server.frontend.call_threads import SPARE_THREADS
from shardcall_server.settings import client_share


class Admission:
    """Counts the calls that are worked on, those included that wait for the mesh.

    Args:
        max_calls: how many there may be at once.
        max_calls_per_client: how many of one owner; the rest is left for others.
        max_calls_per_connection: how many of one connection of an owner that may have several; the rest is left for
            the owner's other programs.
        max_arriving_per_client: how many of one owner that need no place may wait for their requests: each holds a
            thread meanwhile.
    """

    def __init__(
        self,
        max_calls: int,
        max_calls_per_client: int,
        max_calls_per_connection: int,
        max_arriving_per_client: int = client_share(SPARE_THREADS),
    ) -> None:
        self.max_calls = max_calls
        self._max_calls_per_client = max_calls_per_client
        self._max_calls_per_connection = max_calls_per_connection
        self._max_arriving_per_client = max_arriving_per_client
        self._arriving: Counter[str] = Counter()
        self._by_owner: Counter[str] = Counter()
        self._by_connection: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self.calls = 0

    @contextmanager
    def working(self, call: Call) -> Iterator[None]:
        """Has a place among the calls that are worked on, during the body.

        Raises:
            CallError: SERVER_BUSY, QUOTA_EXCEEDED.
        """
        with self._lock:
            self._check(call)
            self._count(call, 1)
        try:
            yield
        finally:
            with self._lock:
                self._count(call, -1)

    @contextmanager
    def arriving(self, call: Call) -> Iterator[None]:
        """Waits for its request during the body, without a place.

        Raises:
            CallError: QUOTA_EXCEEDED.
        """
        with self._lock:
            if self._arriving[call.owner] >= self._max_arriving_per_client:
                raise _too_many_arrive(self._max_arriving_per_client)
            self._arriving[call.owner] += 1
        try:
            yield
        finally:
            with self._lock:
                self._arriving[call.owner] -= 1
                if not self._arriving[call.owner]:
                    del self._arriving[call.owner]

    def _count(self, call: Call, number: int) -> None:
        self.calls += number
        owner, connection = call.owner, (call.owner, call.connection)
        self._by_owner[owner] += number
        self._by_connection[connection] += number
        if number < 0:
            if not self._by_owner[owner]:
                del self._by_owner[owner]
            if not self._by_connection[connection]:
                del self._by_connection[connection]

    def _check(self, call: Call) -> None:
        if self.calls >= self.max_calls:
            raise server_busy(self.max_calls)
        if self._by_owner[call.owner] >= self._max_calls_per_client:
            raise _quota_exceeded("client", self._max_calls_per_client)
        several = call.owner != call.connection
        if several and self._by_connection[call.owner, call.connection] >= self._max_calls_per_connection:
            raise _quota_exceeded("connection", self._max_calls_per_connection)


def server_busy(max_calls: int) -> CallError:
    """The error of a call for which every place is taken."""
    return CallError(
        Reason.SERVER_BUSY,
        f"the server works on {max_calls} calls already, the most it takes at once; repeat the call later",
        metadata={"limit": "max_concurrent_calls", "allowed": str(max_calls)},
    )


def _too_many_arrive(limit: int) -> CallError:
    return CallError(
        Reason.QUOTA_EXCEEDED,
        f"the server waits for the requests of {limit} calls of this client already, the most of one client; send a "
        "call's request with its beginning, and repeat this one later",
        metadata={"limit": "calls whose request has not come", "allowed": str(limit)},
    )


def _quota_exceeded(whose: str, limit: int) -> CallError:
    return CallError(
        Reason.QUOTA_EXCEEDED,
        f"the server works on {limit} calls of this {whose} already, the most of one {whose} at once; repeat the call "
        "when some of them are done",
        metadata={"limit": f"max_concurrent_calls_per_{whose}", "allowed": str(limit)},
    )
