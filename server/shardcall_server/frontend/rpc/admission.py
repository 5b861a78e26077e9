"""The calls that arrive and that are worked on at once: in all, of one client, and of one of its connections."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.settings import client_share

RESERVED_SLOTS = 16
"""Slots of each kind beyond its limit, for clients that have none of them."""

QUESTION_SLOTS = 32
"""Slots for questions about the server and about arrays, which get through while every call slot is taken."""

Advance = Callable[[bool], None]
"""Ends a call's arrival. Told whether it waits for a call slot, or is refused where there is none."""


class Slots:
    """Slots of one kind, with a limit in all, one for each client and one for each of its connections.

    A client that has none gets one beyond the limit in all, as long as reserved ones are left.

    Args:
        doing: what the server does with a call that has one, for the error message.
        limit: the name of the limit in all, for programs.
        in_all: how many there are.
        per_client: how many one owner may have; the rest is left for others.
        per_connection: how many one connection may have of an owner that may have several; the rest is left for the
            owner's other programs.

    Attributes:
        taken: how many are taken.
        most: the most that may be taken, reserved ones included.
    """

    def __init__(self, doing: str, limit: str, in_all: int, per_client: int, per_connection: int) -> None:
        self._doing = doing
        self._limit = limit
        self._in_all = in_all
        self._per_client = per_client
        self._per_connection = per_connection
        self._by_owner: Counter[str] = Counter()
        self._by_connection: Counter[tuple[str, str]] = Counter()
        self._waiting: deque[tuple[ServerCall, Future[None]]] = deque()
        self._lock = threading.Lock()
        self.taken = 0
        self.most = in_all + RESERVED_SLOTS

    def busy(self) -> CallError:
        """The error of a call for which no slot is free."""
        return CallError(
            Reason.SERVER_BUSY,
            f"the server {self._doing} {self._in_all} calls already, the most at once; repeat the call later",
            metadata={"limit": self._limit, "allowed": str(self._in_all)},
        )

    def take(self, call: ServerCall) -> None:
        """Takes a slot.

        Raises:
            CallError: SERVER_BUSY, QUOTA_EXCEEDED.
        """
        with self._lock:
            if (refusal := self._refusal(call)) is not None:
                raise refusal
            self._count(call, 1)

    def wait(self, call: ServerCall) -> None:
        """Takes a slot as soon as there is one, in the order of coming.

        Raises:
            CallError: the deadline passed or the caller left.
        """
        with self._lock:
            if self._refusal(call) is None:
                self._count(call, 1)
                return
            waiter = (call, Future[None]())
            self._waiting.append(waiter)
        try:
            call.wait(waiter[1], "waiting for a call slot")
        except BaseException:
            with self._lock:
                has_slot = waiter[1].done()
                if not has_slot:
                    self._waiting.remove(waiter)
            if has_slot:  # it came at the last moment
                self.give_back(call)
            raise

    def give_back(self, call: ServerCall) -> None:
        """Gives a slot back that was taken for a call."""
        with self._lock:
            self._count(call, -1)
            given = [waiter for waiter in self._waiting if self._given(waiter[0])] if self._waiting else []
            for waiter in given:
                self._waiting.remove(waiter)
                waiter[1].set_result(None)

    def _given(self, call: ServerCall) -> bool:
        if self._refusal(call) is not None:
            return False
        self._count(call, 1)
        return True

    def _count(self, call: ServerCall, number: int) -> None:
        self.taken += number
        owner, connection = call.owner, (call.owner, call.connection)
        self._by_owner[owner] += number
        self._by_connection[connection] += number
        if number < 0:
            if not self._by_owner[owner]:
                del self._by_owner[owner]
            if not self._by_connection[connection]:
                del self._by_connection[connection]

    def _refusal(self, call: ServerCall) -> CallError | None:
        own = self._by_owner.get(call.owner, 0)
        if self.taken >= (self._in_all if own else self.most):
            return self.busy()
        if own >= self._per_client:
            return self._quota_exceeded("client", self._per_client)
        several = call.owner != call.connection
        if several and self._by_connection.get((call.owner, call.connection), 0) >= self._per_connection:
            return self._quota_exceeded("connection", self._per_connection)
        return None

    def _quota_exceeded(self, whose: str, limit: int) -> CallError:
        return CallError(
            Reason.QUOTA_EXCEEDED,
            f"the server {self._doing} {limit} calls of this {whose} already, the most of one {whose} at once; repeat "
            "the call when some of them are done",
            metadata={"limit": f"{self._limit}_per_{whose}", "allowed": str(limit)},
        )


class Admission:
    """The slots of a server's calls.

    A call has an upload slot until its request and operands have arrived, and a call slot from then on, while it waits
    for the mesh and is worked on. So calls that stall on their way in keep nobody from being served. A question about
    the server has a slot of a third kind while its request arrives.

    Args:
        in_all: how many call slots there are, and how many upload slots.
        per_client: how many of each one client may have.
        per_connection: how many of each one connection of a client may have.
    """

    def __init__(self, in_all: int, per_client: int, per_connection: int) -> None:
        limits = "max_concurrent_calls", in_all, per_client, per_connection
        self._calls = Slots("works on", *limits)
        self._uploads = Slots("takes in the operands of", *limits)
        share = client_share(QUESTION_SLOTS)
        self._questions = Slots("takes in the requests of", "arriving_requests", QUESTION_SLOTS, share, share)
        self.busy = self._calls.busy

    @property
    def most_at_once(self) -> int:
        """The most calls that have a slot at once, of any kind: each holds a thread."""
        return sum(slots.most for slots in (self._calls, self._uploads, self._questions))

    @property
    def calls(self) -> int:
        """The number of calls under way: those that arrive, wait for the mesh or are worked on."""
        return self._calls.taken + self._uploads.taken

    @contextmanager
    def entered(self, call: ServerCall, *, works: bool) -> Iterator[Advance]:
        """Has a slot for a call that arrives, and a call slot once that is over, during the body.

        Args:
            call: whose slot it is.
            works: whether the call works on arrays; False for questions.

        Raises:
            CallError: SERVER_BUSY, QUOTA_EXCEEDED.
        """
        arrival = self._uploads if works else self._questions
        with ExitStack() as slots:
            arrival.take(call)
            arriving = slots.enter_context(ExitStack())
            arriving.callback(arrival.give_back, call)

            def advance(wait: bool) -> None:
                if works:
                    (self._calls.wait if wait else self._calls.take)(call)
                    slots.callback(self._calls.give_back, call)
                arriving.close()

            yield advance
