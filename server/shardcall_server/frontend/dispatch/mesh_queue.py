"""Queue of the calls that wait for the mesh, and grants for the few that it executes at a time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice
from operator import attrgetter

from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import check_held, lock
from shardcall_server.frontend.memory.device_budget import DeviceBudget
from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable
from shardcall_server.frontend.rpc.fair_queue import FairQueue
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.workers.session import MeshSession
from shardcall_server.host_memory import memory_bytes
from shardcall_server.settings import Settings

_MAX_SLOW_PER_OWNER = 2
"""The maximum number of slow calls of one client that are launched: other clients wait for no more of them."""


class LaunchGrant:
    """Permission to launch one call, from before its command is sent until the mesh has answered.

    Attributes:
        device_bytes: the device memory that the call takes.
        share: what it counts of the limit of granted calls.
        slow_owner: the client, if the call is slow; otherwise empty.
    """

    __slots__ = ("_ended", "_queue", "device_bytes", "share", "slow_owner")

    def __init__(self, queue: MeshQueue, device_bytes: int, share: float, slow_owner: str) -> None:
        self._queue = queue
        self._ended = False
        self.device_bytes = device_bytes
        self.share = share
        self.slow_owner = slow_owner

    def memory(self) -> LaunchGrant:
        """Moves the memory to a grant that is released apart: a loop has it between its slices, too."""
        memory = LaunchGrant(self._queue, self.device_bytes, 0.0, "")
        self.device_bytes = 0
        return memory

    def release(self) -> None:
        """Releases the grant to the next call; repeated calls do nothing."""
        if not self._ended:
            self._ended = True
            self._queue.release(self)


class _Waiter:
    """A waiting call.

    Attributes:
        call: the call.
        began: the start of its wait, on the monotonic clock.
        owner: the client that it belongs to.
        connection: the connection by which it came.
        deadline: its deadline, on the monotonic clock.
        weight: the weight of the client.
        device_bytes: the device memory that it needs.
        share: what it counts of the limit of granted calls.
        slow_owner: as of its grant.
        grant: its grant; None while it waits and if it is refused.
        refusal: the error by which it is refused.
        decided: done when the grant or the refusal is set.
    """

    __slots__ = (
        "began",
        "call",
        "connection",
        "deadline",
        "decided",
        "device_bytes",
        "grant",
        "owner",
        "refusal",
        "share",
        "slow_owner",
        "weight",
    )

    def __init__(self, call: ServerCall, device_bytes: int, share: float, slow_owner: str) -> None:
        self.call = call
        self.began = time.monotonic()
        self.share = share
        self.slow_owner = slow_owner
        self.owner = call.owner
        self.connection = call.connection
        self.deadline = call.deadline
        self.weight = call.weight
        self.device_bytes = device_bytes
        self.grant: LaunchGrant | None = None
        self.refusal: CallError | None = None
        self.decided: Promise[None] = Promise()


def make_queue(
    settings: Settings, session: Callable[[], MeshSession | None], array_table: ResidentArrayTable
) -> MeshQueue:
    """Returns the queue of a server; the device memory is the configured one, or that of the platform or the host.

    Args:
        session: returns the current session of the mesh; None if there is none.
    """
    detected_bytes = memory_bytes()

    def limit_bytes() -> int:
        nonlocal detected_bytes
        present = session()
        # A session that is starting does not know yet.
        detected_bytes = (present.device_bytes if present else 0) or detected_bytes
        return settings.max_device_bytes or detected_bytes

    budget = DeviceBudget(limit_bytes, partial(attrgetter("device_bytes"), array_table))
    return MeshQueue(settings.max_launched_calls, settings.queued_calls, settings.queued_calls_per_client, budget)


class MeshQueue:
    """Grants launches to calls: as many at a time as keep the mesh busy, so that later calls need not wait for more.

    A call acquires its grant when its operands are complete and memory for its results is reserved, and releases it
    when the mesh has answered. A call gets its grant at once if none is waiting. One client has at most two slow calls
    launched, so that calls of others are behind no more of them. The queue is independent of sessions:
    calls that wait when the mesh ends go to the next one.

    Args:
        max_launched: the limit of granted calls.
        max_queued: the limit of all waiting calls, beside the first of each owner.
        max_queued_per_client: the limit of waiting calls of one owner.
        budget: the memory of the devices.

    Attributes:
        budget: as above.
        launched: the shares of the granted calls.
        grants: the number of grants so far.
    """

    def __init__(self, max_launched: int, max_queued: int, max_queued_per_client: int, budget: DeviceBudget) -> None:
        self._max_launched = max_launched
        self._min_share = 1.0 if max_launched == 1 else 0.0  # one call at a time
        self._max_queued = max_queued
        self._max_queued_per_client = max_queued_per_client
        self.budget = budget
        self._line: FairQueue[_Waiter] = FairQueue()
        self._slow: Counter[str] = Counter()
        # Guards the queue, the grants and the budget.
        self._lock = lock("the lock of the queue for the mesh")
        self._waiters: dict[ServerCall, _Waiter] = {}  # every use is one operation
        self.launched = 0.0
        self.grants = 0

    @property
    def queued(self) -> int:
        """Number of waiting calls."""
        return len(self._line)

    def waiting(self, count: int | None = None) -> list[tuple[ServerCall, int, float]]:
        """Returns the calls that wait, their positions, 1 for the next, and the times at which they began to.

        Args:
            count: the limit, of the calls that have waited longest; None for all.
        """
        waiters = islice(self._waiters.copy().items(), count)
        with self._lock:
            return [(call, self._line.position(waiter), waiter.began) for call, waiter in waiters]

    def check(self, device_bytes: int) -> None:
        """Refuses a call that the devices could never execute, before memory is allocated for it.

        Raises:
            CallError: OUT_OF_DEVICE_MEMORY.
        """
        self.budget.check(device_bytes)

    async def acquire(
        self,
        call: ServerCall,
        device_bytes: int = 0,
        *,
        share: float = 1.0,
        is_slow: bool = False,
        again: bool = False,
    ) -> LaunchGrant:
        """Waits for a grant, which the caller must release. The wait is the phase "queue".

        Args:
            device_bytes: the device memory that it needs; 0 if negligible.
            share: what it counts of the limit of granted calls; a binary fraction.
            is_slow: whether it may occupy the mesh for long.
            again: whether an earlier grant was of no use, so that the limits of the queue do not apply.

        Raises:
            CallError: too many calls wait, the devices lack the memory, the deadline passed or the caller left.
        """
        share, slow_owner = max(share, self._min_share), call.owner if is_slow else ""
        with self._lock:
            if not self._line and self.launched + share <= self._max_launched and self._may_launch(slow_owner):
                if self.budget.add(device_bytes):
                    return self._grant(device_bytes, share, slow_owner)
            else:
                self.budget.check(device_bytes)
            if not again:
                self._check_limits(call.owner)
            waiter = _Waiter(call, device_bytes, share, slow_owner)
            self._line.add(waiter)
            decided = self._advance()  # those before it may wait for their clients' slow calls alone
        for other in decided:
            other.decided.set_result(None)
        self._waiters[call] = waiter
        with call.phase("queue"):
            try:
                await call.wait(waiter.decided, "waiting for the mesh")
            except BaseException:
                self._leave(waiter)
                raise
            finally:
                self._waiters.pop(call, None)
        if waiter.grant is None:
            assert waiter.refusal is not None
            raise waiter.refusal
        return waiter.grant

    def release(self, grant: LaunchGrant) -> None:
        """Releases a grant; see `LaunchGrant.release`."""
        with self._lock:
            self.launched -= grant.share
            self.budget.program_bytes -= grant.device_bytes
            if grant.slow_owner:
                self._slow[grant.slow_owner] -= 1
                if not self._slow[grant.slow_owner]:
                    del self._slow[grant.slow_owner]
            decided = self._advance() if self._line else ()
        for waiter in decided:  # without the lock, since callbacks may do anything
            waiter.decided.set_result(None)

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            # Calls behind it may need less memory.
            decided = self._advance() if self._line.remove(waiter) else ()
        for other in decided:
            other.decided.set_result(None)
        if waiter.grant is not None:  # it was granted at the last moment
            waiter.grant.release()

    def _advance(self) -> list[_Waiter]:
        """Decides on waiting calls, in order; returns the decided ones.

        Behind one that must wait for memory only those are granted that need none, such as the slices of the loops
        that it waits for.
        """
        check_held(self._lock)
        decided: list[_Waiter] = []
        is_admitted = self._is_admitted
        while (waiter := self._line.peek(is_admitted)) is not None:
            try:
                if self.launched + waiter.share > self._max_launched:
                    self.budget.check(waiter.device_bytes)
                    break
                if not self.budget.add(waiter.device_bytes):
                    is_admitted = self._is_admitted_without_memory
                    continue
            except CallError as error:  # resident arrays have taken the memory meanwhile
                waiter.refusal = error
            else:
                waiter.grant = self._grant(waiter.device_bytes, waiter.share, waiter.slow_owner)
            decided.append(waiter)
            self._line.take(waiter)
        return decided

    def _grant(self, device_bytes: int, share: float, slow_owner: str) -> LaunchGrant:
        self.launched += share
        self.grants += 1
        if slow_owner:
            self._slow[slow_owner] += 1
        return LaunchGrant(self, device_bytes, share, slow_owner)

    def _may_launch(self, slow_owner: str) -> bool:
        return not slow_owner or self._slow[slow_owner] < _MAX_SLOW_PER_OWNER

    def _is_admitted(self, waiter: _Waiter) -> bool:
        return self._may_launch(waiter.slow_owner)

    def _is_admitted_without_memory(self, waiter: _Waiter) -> bool:
        return not waiter.device_bytes and self._may_launch(waiter.slow_owner)

    def _check_limits(self, owner: str) -> None:
        owner_count = self._line.count(owner)
        if not owner_count:  # every owner of a call slot may have one call waiting
            return
        # Calls that wait for slow calls of their client alone take the place of calls that could be launched.
        spare = int(self._max_launched - self.launched)
        for reason, whose, waiting, limit, setting in (
            (Reason.SERVER_BUSY, "calls", len(self._line), self._max_queued, "max_queued_calls"),
            (
                Reason.QUOTA_EXCEEDED,
                "of this client's calls",
                owner_count,
                self._max_queued_per_client,
                "max_queued_calls_per_client",
            ),
        ):
            if waiting >= limit + spare:
                raise CallError(
                    reason,
                    f"{waiting} {whose} wait for the mesh already, the maximum; repeat the call later",
                    metadata={"limit": setting, "allowed": str(limit)},
                )
