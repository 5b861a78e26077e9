"""The calls that are with the mesh, few at a time, and those that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.memory.device_budget import DeviceBudget
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.rpc.fair_queue import FairQueue
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.host_memory import memory_bytes
from shardcall_server.settings import Settings


class LaunchGrant:
    """A call's use of the mesh, from just before its command is sent until the mesh has answered.

    Attributes:
        device_bytes: what it takes on the devices.
    """

    __slots__ = ("_ended", "_queue", "device_bytes")

    def __init__(self, queue: MeshQueue, device_bytes: int) -> None:
        self._queue = queue
        self._ended = False
        self.device_bytes = device_bytes

    def release(self) -> None:
        """Lets the next call have the mesh; once is enough."""
        if not self._ended:
            self._ended = True
            self._queue.release(self)


class _Waiter:
    """A call that waits.

    Attributes:
        owner: whose it is.
        connection: what it came by.
        deadline: when it gives up, on the monotonic clock.
        device_bytes: what it needs on the devices.
        grant: what it was given; None while it waits, and where it was refused.
        refusal: why it was refused.
        told: done when either is there.
    """

    __slots__ = ("connection", "deadline", "device_bytes", "grant", "owner", "refusal", "told")

    def __init__(self, call: ServerCall, device_bytes: int) -> None:
        self.owner = call.owner
        self.connection = call.connection
        self.deadline = call.deadline
        self.device_bytes = device_bytes
        self.grant: LaunchGrant | None = None
        self.refusal: CallError | None = None
        self.told: Future[None] = Future()


def make_queue(
    settings: Settings, session: Callable[[], MeshSession | None], array_table: ResidentArrayTable
) -> MeshQueue:
    """The queue of a server, whose devices have the memory that was set, or that the platform or the host has.

    Args:
        settings: the server's.
        session: the mesh's present session; None while there is none.
        array_table: the arrays that stay.
    """
    found_bytes = memory_bytes()

    def limit_bytes() -> int:
        nonlocal found_bytes
        present = session()
        found_bytes = (present.device_bytes if present else 0) or found_bytes  # one that starts does not know yet
        return settings.max_device_bytes or found_bytes

    budget = DeviceBudget(limit_bytes, lambda: array_table.device_bytes)
    return MeshQueue(settings.max_launched_calls, settings.queued_calls, settings.queued_calls_per_client, budget)


class MeshQueue:
    """Gives calls the mesh: as many at a time as keep it busy, so that whoever comes next need not wait for more.

    A call takes its grant when its operands are whole and its results have room; it ends with the mesh's answer. A
    call that finds nobody waiting goes through at once. It neither sends nor knows of sessions: what waits here when
    the mesh ends waits on, and goes to the next.

    Args:
        max_launched: the most calls that the mesh has at a time.
        max_queued: the most that wait, in all, beside the first of each owner.
        max_queued_per_client: the most of one owner that wait.
        budget: the devices' memory.
    """

    def __init__(self, max_launched: int, max_queued: int, max_queued_per_client: int, budget: DeviceBudget) -> None:
        self._max_launched = max_launched
        self._max_queued = max_queued
        self._max_queued_per_client = max_queued_per_client
        self.budget = budget
        self._line: FairQueue[_Waiter] = FairQueue()
        self._lock = threading.Lock()
        self.launched = 0

    @property
    def queued(self) -> int:
        """How many calls wait."""
        return len(self._line)

    def check(self, device_bytes: int) -> None:
        """Refuses a call that could get no grant, before anything is allocated for it.

        Raises:
            CallError: OUT_OF_DEVICE_MEMORY.
        """
        self.budget.check(device_bytes)

    def acquire(self, call: ServerCall, device_bytes: int = 0, *, again: bool = False) -> LaunchGrant:
        """Waits for a grant; whoever gets one ends it. The wait is the phase "queue".

        Args:
            call: whose turn it is.
            device_bytes: what it needs on the devices; 0 for nothing worth counting.
            again: whether it had a turn that came to nothing; then no limit of the queue holds for it.

        Raises:
            CallError: too many wait, the devices cannot have the memory, the deadline passed or the caller left.
        """
        with self._lock:
            self.budget.check(device_bytes)
            if not self._line and self._is_free(device_bytes):
                return self._launch(device_bytes)
            if not again:
                self._check_room(call.owner)
            waiter = _Waiter(call, device_bytes)
            self._line.add(waiter)
        with call.phase("queue"):
            try:
                call.wait(waiter.told, "waiting for the mesh")
            except BaseException:
                self._leave(waiter)
                raise
        if waiter.grant is None:
            assert waiter.refusal is not None
            raise waiter.refusal
        return waiter.grant

    def release(self, grant: LaunchGrant) -> None:
        """Takes a grant back; see `LaunchGrant.end`."""
        with self._lock:
            self.launched -= 1
            self.budget.program_bytes -= grant.device_bytes
            told = self._advance() if self._line else []
        _tell(told)

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            # Those behind it may need less memory than it did.
            told = self._advance() if self._line.remove(waiter) else []
        _tell(told)
        if waiter.grant is not None:  # it came at the last moment
            waiter.grant.release()

    def _is_free(self, device_bytes: int) -> bool:
        return self.launched < self._max_launched and self.budget.fits(device_bytes)

    def _launch(self, device_bytes: int) -> LaunchGrant:
        self.launched += 1
        self.budget.program_bytes += device_bytes
        return LaunchGrant(self, device_bytes)

    def _advance(self) -> list[_Waiter]:
        """Gives turns to those who can have one; returns who is to be told. Nobody overtakes who waits for memory."""
        told: list[_Waiter] = []
        while (waiter := self._line.peek()) is not None:
            try:
                self.budget.check(waiter.device_bytes)
            except CallError as error:  # arrays that stay have come meanwhile
                waiter.refusal = error
            else:
                if not self._is_free(waiter.device_bytes):
                    break
                waiter.grant = self._launch(waiter.device_bytes)
            told.append(self._line.pop())
        return told

    def _check_room(self, owner: str) -> None:
        own = self._line.count(owner)
        if not own:  # whoever has a call slot may have one call wait
            return
        for reason, whose, waiting, limit, setting in (
            (Reason.SERVER_BUSY, "calls", len(self._line), self._max_queued, "max_queued_calls"),
            (
                Reason.QUOTA_EXCEEDED,
                "of this client's calls",
                own,
                self._max_queued_per_client,
                "max_queued_calls_per_client",
            ),
        ):
            if waiting >= limit:
                raise CallError(
                    reason,
                    f"{waiting} {whose} wait for the mesh already, as many as may; repeat the call later",
                    metadata={"limit": setting, "allowed": str(limit)},
                )


def _tell(waiters: list[_Waiter]) -> None:
    """Wakes those who have their grant; outside the lock, since whoever waits may do anything then."""
    for waiter in waiters:
        waiter.told.set_result(None)
