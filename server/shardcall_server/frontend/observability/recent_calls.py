"""The last calls and errors, and the calls of each program, for the live page."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from shardcall_core.call_error import Reason
from shardcall_server.frontend.rpc.server_call import ServerCall

_MAX_CALLS = 24
_MAX_ERRORS = 24
_MAX_REFUSED = 8
_MAX_PROGRAMS = 1024


class EndedCall(NamedTuple):
    """A call that has ended.

    Attributes:
        method: the method's name without its service.
        kernel: the kernel; empty if there is none.
        principal: the caller; empty without authentication.
        request_id: its id.
        ended_at: the moment of its end on the monotonic clock.
        total_s: its duration.
        phases: name, seconds and end on the monotonic clock of each part of a phase.
        array_bytes: the bytes of its arrays.
        reason: the reason of its failure; None if it succeeded.
    """

    method: str
    kernel: str
    principal: str
    request_id: str
    ended_at: float
    total_s: float
    phases: Sequence[tuple[str, float, float]]
    array_bytes: int
    reason: Reason | None


@dataclass(frozen=True)
class RecentError:
    """An error, or several equal ones: without another between them, or of calls that were not admitted.

    Attributes:
        method: the method's name without its service.
        kernel: the kernel; empty if there is none.
        principal: the caller; empty if it is not known.
        request_id: the id of the last call; empty for calls that were not admitted.
        reason: the reason.
        ended_at: the moment of the last one on the monotonic clock.
        count: their number.
    """

    method: str
    kernel: str
    principal: str
    request_id: str
    reason: Reason
    ended_at: float
    count: int = 1

    def is_like(self, other: RecentError) -> bool:
        """Returns whether both have the same caller, method, kernel and reason."""
        return all(getattr(self, name) == getattr(other, name) for name in ("method", "kernel", "principal", "reason"))


@dataclass
class ProgramCalls:
    """The calls that ran a program.

    Attributes:
        hits: those that found it in the cache.
        execute_s: the seconds that it ran on the devices.
    """

    hits: int = 0
    execute_s: float = 0.0


class RecentCalls:
    """Keeps the last calls and errors, and counts the calls of each program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all of these
        self._calls: deque[EndedCall] = deque(maxlen=_MAX_CALLS)
        self._errors: deque[RecentError] = deque(maxlen=_MAX_ERRORS)
        # Apart from the others, so that callers without a token cannot remove those.
        self._refused: OrderedDict[tuple[str, Reason], RecentError] = OrderedDict()
        self._programs: OrderedDict[str, ProgramCalls] = OrderedDict()

    def add(self, method: str, call: ServerCall, reason: Reason | None) -> None:
        """Adds a call that has ended."""
        now = time.monotonic()
        ended = EndedCall(
            method,
            call.kernel,
            call.principal_name,
            call.request_id,
            now,
            call.timing.total_seconds,
            call.phases,
            call.received_bytes + call.sent_bytes + call.shared_bytes,
            reason,
        )
        with self._lock:
            self._calls.append(ended)
            if call.key:
                self._count(call.key, bool(call.cache_hit), call.timing.execute_seconds)
        if reason is not None and not call.is_dependent:  # a chain of any length is one error
            self._add_error(RecentError(method, call.kernel, call.principal_name, call.request_id, reason, now))

    def add_refused(self, method: str, reason: Reason) -> None:
        """Adds a call that was not admitted."""
        with self._lock:
            earlier = self._refused.pop((method, reason), None)
            count = earlier.count + 1 if earlier else 1
            self._refused[method, reason] = RecentError(method, "", "", "", reason, time.monotonic(), count)
            if len(self._refused) > _MAX_REFUSED:
                self._refused.popitem(last=False)

    def calls(self) -> list[EndedCall]:
        """Returns the last calls, the latest first."""
        with self._lock:
            return list(reversed(self._calls))

    def errors(self) -> list[RecentError]:
        """Returns the last errors, the latest first."""
        with self._lock:
            errors = [*self._refused.values(), *self._errors]
        return sorted(errors, key=lambda error: error.ended_at, reverse=True)

    def of_program(self, key: str) -> ProgramCalls:
        """Returns the calls that ran a program since the server's start.

        Args:
            key: the digest of the program's key.
        """
        with self._lock:
            return replace(self._programs.get(key, ProgramCalls()))

    def _count(self, key: str, is_hit: bool, execute_s: float) -> None:
        counts = self._programs.get(key)
        if counts is None:
            counts = self._programs[key] = ProgramCalls()
            if len(self._programs) > _MAX_PROGRAMS:
                self._programs.popitem(last=False)
        counts.hits += is_hit
        counts.execute_s += execute_s

    def _add_error(self, error: RecentError) -> None:
        with self._lock:
            if self._errors and self._errors[-1].is_like(error):
                error = replace(error, count=self._errors.pop().count + 1)
            self._errors.append(error)
