"""Admission control: limits on concurrent calls in total, for each client and for each of its connections."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import lock
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.settings import client_share

RESERVED_SLOTS = 16
"""Slots of each kind beyond the total limit, for clients that hold none."""

CONTROL_SLOTS = 32
"""Slots for RPCs that do not work on arrays; these are admitted even if every call slot is taken."""

Advance = Callable[[bool], None]
"""Ends a call's arrival.

If no call slot is free, the call waits if the argument is True, or if its client has slots, and is refused otherwise.
"""


@dataclass(eq=False)
class _SlotWaiter:
    """A call that waits for a slot.

    Attributes:
        call: the call.
        admitted: done once it has a slot.
        has_slot: whether it has one.
    """

    call: ServerCall
    admitted: Promise[None]
    has_slot: bool = False


class Slots:
    """Slots of one kind, limited in total, for each client and for each of its connections.

    A client without a slot gets one beyond the total limit while reserved slots are left.

    Args:
        doing: the verb of the error message, "the server <doing> 5 calls".
        limit: the name of the total limit in the error's metadata.
        per_client: the limit of one owner.
        per_connection: the limit of one connection, for owners that may have several.

    Attributes:
        taken: the number of slots in use.
        capacity: the largest possible ``taken``, reserved slots included.
    """

    def __init__(self, doing: str, limit: str, total: int, per_client: int, per_connection: int) -> None:
        self._doing = doing
        self._limit = limit
        self._total = total
        self._per_client = per_client
        self._per_connection = per_connection
        self._by_owner: dict[str, int] = {}
        self._by_connection: dict[tuple[str, str], int] = {}
        # By connection, and there those of call streams apart: others do not wait behind all of them.
        self._waiting: OrderedDict[tuple[str, str, bool], deque[_SlotWaiter]] = OrderedDict()
        self._lock = lock("the lock of call slots")  # guards the counts and those who wait; no call continues under it
        self.taken = 0
        self.capacity = total + RESERVED_SLOTS

    def busy_error(self) -> CallError:
        """Returns the error of a call for which no slot is free."""
        return CallError(
            Reason.SERVER_BUSY,
            f"the server {self._doing} {self._total} calls already, the maximum; repeat the call later",
            metadata={"limit": self._limit, "allowed": str(self._total)},
        )

    def acquire(self, call: ServerCall) -> None:
        """Acquires a slot without waiting.

        Raises:
            CallError: SERVER_BUSY, QUOTA_EXCEEDED.
        """
        with self._lock:
            if not self._may_take(call):
                raise self._refusal(call)
            self._count(call, 1)

    def by_owner(self) -> dict[str, int]:
        """Returns the number of slots of each owner that has any."""
        with self._lock:
            return dict(self._by_owner)

    def are_held_by_client(self, call: ServerCall) -> bool:
        """Returns whether other calls of a call's client have slots, so that it may wait for these to end."""
        with self._lock:
            return bool(self._by_owner.get(call.owner))

    async def wait(self, call: ServerCall, *, is_streamed: bool = False) -> None:
        """Acquires a slot, in order of arrival; the calls of other connections may overtake.

        Args:
            call: the call.
            is_streamed: whether it is one of a call stream; those and others of a connection overtake each other, too.

        Raises:
            CallError: the deadline passed or the caller left.
        """
        with self._lock:
            if self._may_take(call):
                self._count(call, 1)
                return
            key, waiter = (call.owner, call.connection, is_streamed), _SlotWaiter(call, Promise())
            self._waiting.setdefault(key, deque()).append(waiter)
        try:
            await call.wait(waiter.admitted, "waiting for a call slot")
        except BaseException:
            with self._lock:
                has_slot = waiter.has_slot
                if not has_slot:
                    self._waiting[key].remove(waiter)
                    if not self._waiting[key]:
                        del self._waiting[key]
            if has_slot:  # acquired while the wait was abandoned
                self.release(call)
            raise

    def release(self, call: ServerCall) -> None:
        """Releases the slot of a call."""
        with self._lock:
            self._count(call, -1)
            admitted = self._admit() if self._waiting else ()
        for waiter in admitted:  # without the lock: a waiting call continues on this thread
            waiter.admitted.set_result(None)

    def _admit(self) -> list[_SlotWaiter]:
        """Gives free slots to the waiting calls, to one connection after the other; returns those that got one."""
        admitted: list[_SlotWaiter] = []
        progress = True
        while progress:
            progress = False
            for key, waiters in list(self._waiting.items()):
                if not self._may_take(waiters[0].call):
                    continue
                waiter = waiters.popleft()
                waiter.has_slot = progress = True
                self._count(waiter.call, 1)
                admitted.append(waiter)
                if waiters:
                    self._waiting.move_to_end(key)
                else:
                    del self._waiting[key]
        return admitted

    def _count(self, call: ServerCall, number: int) -> None:
        self.taken += number
        by_owner, by_connection = self._by_owner, self._by_connection
        owner, connection = call.owner, (call.owner, call.connection)
        by_owner[owner] = of_owner = by_owner.get(owner, 0) + number
        by_connection[connection] = of_connection = by_connection.get(connection, 0) + number
        if not of_owner:
            del by_owner[owner]
        if not of_connection:
            del by_connection[connection]

    def _may_take(self, call: ServerCall) -> bool:
        of_owner = self._by_owner.get(call.owner, 0)
        return (
            self.taken < (self._total if of_owner else self.capacity)
            and of_owner < self._per_client
            and not self._is_connection_full(call)
        )

    def _is_connection_full(self, call: ServerCall) -> bool:
        several = call.owner != call.connection
        return several and self._by_connection.get((call.owner, call.connection), 0) >= self._per_connection

    def _refusal(self, call: ServerCall) -> CallError:
        """Returns the error of a call that may take no slot."""
        if self._by_owner.get(call.owner, 0) >= self._per_client:
            return self._quota_exceeded("client", self._per_client)
        if self._is_connection_full(call):
            return self._quota_exceeded("connection", self._per_connection)
        return self.busy_error()

    def _quota_exceeded(self, whose: str, limit: int) -> CallError:
        return CallError(
            Reason.QUOTA_EXCEEDED,
            f"the server {self._doing} {limit} calls of this {whose} already, the maximum of one {whose}; repeat the "
            "call when some of them are done",
            metadata={"limit": f"{self._limit}_per_{whose}", "allowed": str(limit)},
        )


class Admission:
    """The slots of a server's calls.

    A call holds an upload slot until its request and operands have arrived, and a call slot while it waits for the
    mesh and runs. Uploads that stall therefore block no other call. An RPC that does not work on arrays holds a control
    slot while its request arrives.

    Args:
        total: the number of call slots, and of upload slots.
        per_client: the limit of one client, for each kind.
        per_connection: the limit of one connection of a client, for each kind.

    Attributes:
        calls: the call slots.
    """

    def __init__(self, total: int, per_client: int, per_connection: int) -> None:
        limits = "max_concurrent_calls", total, per_client, per_connection
        self.calls = Slots("works on", *limits)
        self._uploads = Slots("receives the operands of", *limits)
        share = client_share(CONTROL_SLOTS)
        self._control = Slots("receives the requests of", "arriving_requests", CONTROL_SLOTS, share, share)
        self.busy_error = self.calls.busy_error

    @property
    def capacity(self) -> int:
        """The largest possible number of calls with a slot of any kind; each holds a thread."""
        return sum(slots.capacity for slots in (self.calls, self._uploads, self._control))

    @property
    def call_count(self) -> int:
        """The number of calls that arrive, wait for the mesh or run."""
        return self.calls.taken + self._uploads.taken

    def calls_by_owner(self) -> Counter[str]:
        """Returns the number of calls of each owner that arrive, wait for the mesh or run."""
        return Counter(self.calls.by_owner()) + Counter(self._uploads.by_owner())

    @contextmanager
    def admitted(self, call: ServerCall, *, needs_slot: bool, waits: bool = False) -> Iterator[Advance]:
        """Holds a slot for a call during the body: an upload slot and then a call slot if it ``needs_slot``.

        Raises:
            CallError: SERVER_BUSY, QUOTA_EXCEEDED; or, if it ``waits`` for the first slot, the deadline passed or the
                caller left.
        """
        arrival = self._uploads if needs_slot else self._control
        with ExitStack() as slots:
            if waits:
                call.run(arrival.wait(call))
            else:
                arrival.acquire(call)
            arriving = slots.enter_context(ExitStack())
            arriving.callback(arrival.release, call)

            def advance(wait: bool) -> None:
                if needs_slot:
                    if wait or self.calls.are_held_by_client(call):
                        call.run(self.calls.wait(call))
                    else:
                        self.calls.acquire(call)
                    slots.callback(self.calls.release, call)
                arriving.close()

            yield advance
