"""Reads the progress of this client's calls from the server, while somebody looks."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace

from shardcall._src.calls.result import result_placement
from shardcall._src.display.meters import Meters
from shardcall._src.display.progress import Phase, Progress
from shardcall._src.display.watches import REPORT_INTERVAL_S
from shardcall._src.programs.pending_calls import PendingCall, PendingCalls
from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall.v1 import server_info_service_pb2
from shardcall_core.locks import lock
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.errors import ShardcallError
from shardcall_core.wire.forks import begin_anew_in_children

MAX_CALLS = 64
"""The maximum number of calls of one request."""

_RECENT_S = 1.0  # for which calls are asked for with those of other threads
_TIMEOUT_S = 0.5  # of a look, which a thread takes that waits for a call
_ENDLESS = 1 << 62  # the number of iterations of a loop that ends by its condition
_PHASES: Mapping[int, Phase] = {
    server_info_service_pb2.CALL_PHASE_QUEUED: "queued",
    server_info_service_pb2.CALL_PHASE_COMPILING: "compiling",
    server_info_service_pb2.CALL_PHASE_RUNNING: "running",
}


@dataclass(frozen=True)
class _Answer:
    """An answer of the server, which all threads read.

    Attributes:
        listed: the calls that the server has listed.
        seen_at: the calls that it was asked for, and when each was asked for first.
    """

    listed: Mapping[str, Progress] = field(default_factory=dict)
    seen_at: Mapping[str, float] = field(default_factory=dict)


class ProgressReader:
    """Asks the server for the progress of calls, at most ten times a second; safe to use from several threads at once.

    A request has the calls that any thread has looked at in the last second, so that all read the same answer. A call
    of that answer that the server lists neither as waiting nor as a loop runs in one launch, or is about to arrive.

    Args:
        transport: the connection to the server.
        pending: the calls of the client.
        clock: returns the time, in seconds.
        pause: waits for some seconds.
    """

    def __init__(
        self,
        transport: Transport,
        pending: PendingCalls,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = cancellation.pause,
    ) -> None:
        self._transport = transport
        self._pending = pending
        self._clock = clock
        self._pause = pause
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Resets the object in a forked child."""
        self._lock = lock("the lock of the progress")  # held by the thread that asks; waits take the last answer
        self._answer = _Answer()
        self._recent: dict[str, float] = {}  # when a thread looked at a call; any thread adds to it
        self._asked_at = float("-inf")

    def serve(self, meters: Meters) -> None:
        """Makes watches ask this object while it exists."""
        reference = weakref.ref(self)

        def latest(request_id: str, what: str) -> Progress | None:
            reader = reference()
            # In a context of its own: the `Cancellation` of the wait would keep the RPCs of all looks.
            return None if reader is None else Context().run(reader.of_wait, request_id, what)

        meters.latest = latest

    def of_wait(self, request_id: str, what: str) -> Progress | None:
        """Returns the progress of a call that a thread waits for, or else of the oldest one that was submitted.

        None if there is no answer yet.

        Args:
            request_id: its request id; empty for a wait for submitted calls.
            what: its function or kernel.
        """
        names = {request_id: what} if request_id else {}
        names.update(self._pending.names(MAX_CALLS - 1))
        try:
            self._read(names, Deadline(_TIMEOUT_S), wait_s=0.0)
        except ShardcallError:  # the wait goes on, and the call has an error of its own
            return None
        return self._first(names)

    def of_call(self, call: PendingCall, deadline: Deadline) -> Progress | None:
        """Returns the progress of a submitted call, or of the one that it waits for; None if it is answered.

        Waits while another thread asks.

        Args:
            call: the call.
            deadline: the end of the wait for the server.

        Raises:
            ShardcallError: if the server cannot be asked.
        """
        names = _names_up_to(call)
        self._read(names, deadline, wait_s=deadline.remaining_s())
        return None if call.is_done else self._first(names)

    def placement(self, call: PendingCall, index: int, deadline: Deadline) -> MeshPlacement | None:
        """Returns the placement of a result of a submitted call; None if the server does not know it now.

        Args:
            call: the call.
            index: the index of the result.
            deadline: the end of the wait for the server.

        Raises:
            ShardcallError: if the server cannot be asked.
        """
        if not (request_id := call.request_id):
            return None
        for item in self._calls([request_id], deadline, with_results=True):
            return result_placement(item.results, call.first + index, item.mesh)
        return None

    def _first(self, names: Mapping[str, str]) -> Progress | None:
        """Returns the progress of the first call that the server has listed, else of the first one.

        None if the last answer lacks one of them.
        """
        answer = self._answer
        if not answer.seen_at.keys() >= names.keys():
            return None
        for request_id, what in names.items():
            if (listed := answer.listed.get(request_id)) is not None:
                return replace(listed, what=what)
        for request_id, what in names.items():
            return Progress("running", elapsed_s=max(0.0, self._clock() - answer.seen_at[request_id]), what=what)
        return None

    def _read(self, names: Mapping[str, str], deadline: Deadline, wait_s: float) -> None:
        """Asks for calls, unless the last answer is of this moment; waits for that to pass if it lacks them.

        Args:
            names: the calls.
            deadline: the end of the wait for the server.
            wait_s: seconds to wait while another thread asks, which then may have asked for them too.
        """
        self._recent.update(dict.fromkeys(names, self._clock()))
        if not names or not self._lock.acquire(timeout=min(wait_s, threading.TIMEOUT_MAX)):
            return
        try:
            left_s = self._asked_at + REPORT_INTERVAL_S - self._clock()
            if left_s > 0:
                if self._answer.seen_at.keys() >= names.keys():
                    return
                self._pause(left_s)
            self._ask(self._with_recent(names), deadline)
        finally:
            self._lock.release()

    def _with_recent(self, names: Mapping[str, str]) -> Sequence[str]:
        """Returns calls together with those that were looked at in the last second, as many as a request may have."""
        earliest = self._clock() - _RECENT_S
        recent = self._recent.copy()
        for name in [name for name, asked_at in recent.items() if asked_at < earliest]:
            self._recent.pop(name, None)
            del recent[name]
        return [*dict.fromkeys([*names, *recent])][:MAX_CALLS]

    def _ask(self, request_ids: Sequence[str], deadline: Deadline) -> None:
        self._asked_at = now = self._clock()
        seen_at = {name: self._answer.seen_at.get(name, now) for name in request_ids}
        try:
            listed = {item.request_id: _from_proto(item) for item in self._calls(request_ids, deadline)}
        except BaseException:
            self._answer = _Answer()
            raise
        self._answer = _Answer(listed, seen_at)

    def _calls(
        self, request_ids: Sequence[str], deadline: Deadline, *, with_results: bool = False
    ) -> Iterable[server_info_service_pb2.CallProgress]:
        request = server_info_service_pb2.GetProgressRequest(request_ids=request_ids, with_results=with_results)
        method = self._transport.stubs.server.GetProgress
        return self._transport.unary(method, request, deadline, retryable=False).calls


def _names_up_to(call: PendingCall) -> dict[str, str]:
    """Returns the request ids and names of unanswered calls that a call waits for, those that it needs first."""
    names, calls = dict[str, str](), [call]
    seen = {id(call)}
    for item in calls:  # which grows
        if item.is_done or len(calls) > MAX_CALLS:
            continue
        for other in item.depends_on:
            if id(other) not in seen and not other.is_done:
                seen.add(id(other))
                calls.append(other)
    for item in reversed(calls):
        if item.request_id:
            names.setdefault(item.request_id, item.name)
    return dict([*names.items()][-MAX_CALLS:])


def _from_proto(message: server_info_service_pb2.CallProgress) -> Progress:
    phase = _PHASES.get(message.phase, "running")
    total = message.iterations + message.iterations_left
    is_loop = message.phase == server_info_service_pb2.CALL_PHASE_RUNNING
    return Progress(
        phase,
        elapsed_s=message.seconds,
        queue_position=message.queue_position or None,
        iteration=message.iterations if is_loop else None,
        iterations=total if is_loop and total < _ENDLESS else None,
        operands=message.operands,
        earlier_operands=tuple(message.earlier_operands),
        waiting_calls=message.waiting_calls,
    )
