"""Calls that were submitted: their answers, and the errors that nobody has waited for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from functools import partial

from shardcall._src.programs.pending_call import PendingCall, lost_in_fork
from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import GRACE_S, Deadline
from shardcall._src.rpc.threads import check_not_exiting
from shardcall._src.rpc.wakeup import Wakeup
from shardcall._src.transfer.stream_request import StreamRequest
from shardcall_core.locks import check_held, lock
from shardcall_core.types.errors import (
    ArrayLostError,
    CallCancelledError,
    DeadlineExceededError,
    FailedCallWarning,
    InternalServerError,
    MeshRestartedError,
    ShardcallError,
    with_message,
)
from shardcall_core.types.tracebacks import level_of_caller
from shardcall_core.wire.forks import begin_anew_in_children

_HANDLE_BYTES = 16
_READ_HANDLES = 256
_MAX_ERRORS = 64
_MAX_WAIT_S = 0.5  # a signal that arrives just before a wait does not interrupt it


class PendingCalls:
    """The calls that a client has submitted; safe to use from several threads at once.

    Attributes:
        losses: the number of calls that failed because the mesh had lost an array.
    """

    def __init__(self) -> None:
        self._unanswered: dict[PendingCall, None] = {}
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Resets the object in a forked child: the answers go to its parent."""
        for call in self._unanswered:
            call._error, call.is_done, call.resend = lost_in_fork(), True, None
        self._lock = lock("the lock of the pending calls")  # guards all of these; nobody is woken under it
        self._unanswered = {}
        self._uses: dict[bytes, int] = {}
        self._loops: dict[PendingCall, None] = {}  # unanswered ones
        self._deleted: set[bytes] = set()  # of their results
        self._handles: list[bytes] = []
        self._failed: list[PendingCall] = []
        self.losses = 0

    def send(
        self,
        calls: Sequence[PendingCall],
        send: Callable[..., object],
        handles: Sequence[bytes],
        depends_on: Sequence[PendingCall],
        borrowed: Sequence[object] = (),
    ) -> None:
        """Sends a call, or several as one.

        Args:
            calls: the calls.
            send: sends them, after passing the request to the function in its argument ``sending``.
            handles: the handles of its results and of its operands on the mesh.
            depends_on: the calls that make operands.
            borrowed: the operands of other clients, which delete what nobody refers to.

        Raises:
            ShardcallError: as ``send`` raises it.
        """
        try:
            with self._lock:
                for call in calls:
                    call.arrays, call._depends_on = handles, [*depends_on, *call._depends_on]
                    call.borrowed = borrowed
                    for handle in handles:
                        self._uses[handle] = self._uses.get(handle, 0) + 1
                    self._unanswered[call] = None
                    if call.stops_without:
                        self._loops[call] = None
            send(sending=partial(self._sending, calls))
        except BaseException:
            for call in calls:
                call.is_raised = True
                if (streamed := call._streamed) is not None:
                    streamed.cancel()  # it may have been sent
                with self._lock:
                    self._remove(call)
            raise

    def _sending(self, calls: Sequence[PendingCall], streamed: StreamRequest) -> None:
        for call in calls:
            call._streamed = streamed
        for call in calls:
            streamed.add_done_callback(partial(self._answered, call))

    def new_handle(self) -> bytes:
        """Returns a new handle: random bytes, read from the system many at a time."""
        with self._lock:
            if not self._handles:
                random = os.urandom(_HANDLE_BYTES * _READ_HANDLES)
                self._handles = [random[i : i + _HANDLE_BYTES] for i in range(0, len(random), _HANDLE_BYTES)]
            return self._handles.pop()

    def renew(self, calls: Sequence[PendingCall]) -> None:
        """Makes calls that failed as parts of a program ones that were not sent."""
        with self._lock:
            for call in calls:
                self._remove(call)  # whose answer another thread may be about to read
                call._error = call._answer = call._streamed = None
                call._depends_on, call.first = (), 0
                call.is_done = call.is_raised = False

    def is_used(self, handle: bytes) -> bool:
        """Returns True for an operand or a result of a call that was not answered yet."""
        return handle in self._uses

    def wait(self, call: PendingCall, deadline: Deadline | None) -> None:
        """Waits until a call is answered, or has failed.

        Args:
            call: the call.
            deadline: the end of the wait; None for that of the call, whose error the server then sends.

        Raises:
            DeadlineExceededError: if there is no answer in time; the call continues.
            CallCancelledError: if the wait was cancelled.
            ClientClosedError: if Python exits.
        """
        if call.is_done:
            return
        check_not_exiting()
        deadline = deadline or Deadline(call._timeout_s + GRACE_S)
        waiting = _AnswerEvent()
        call._waiting.add(waiting)
        try:
            cancellation.watch(waiting)
            while not call.is_done:
                cancellation.check()
                if deadline.is_exceeded():
                    raise DeadlineExceededError(
                        f"{call}, was not answered within {deadline.timeout_s:g} s; it continues: wait for longer, "
                        "timeout=…",
                        field="timeout",
                    )
                waiting.wait(min(deadline.remaining_s(), _MAX_WAIT_S))
        finally:
            call._waiting.discard(waiting)

    def synchronize(self, deadline: Deadline | None) -> None:
        """Waits for all calls that were submitted before.

        Args:
            deadline: the end of the wait; None for those of the calls.

        Raises:
            DeadlineExceededError: if not all are answered in time; they continue.
            ShardcallError: of the first call that failed and whose error was not raised yet.
        """
        self.finish(deadline)
        self.raise_failure()

    def finish(self, deadline: Deadline | None) -> None:
        """Waits as `synchronize`, and raises no error of a call that failed."""
        self._wait_for_all(deadline)
        for call in tuple(self._failed):
            call.begin()
        self._wait_for_all(deadline)

    @property
    def has_open_calls(self) -> bool:
        """True if a call is not answered, or will be sent again, and a fork has not waited for it in vain."""
        failed = (call for call in tuple(self._failed) if call.resend is not None and not call.is_raised)
        return any(not call.outlasts_forks for call in (*list(self._unanswered), *failed))

    def give_up_calls(self) -> None:
        """Keeps later forks from waiting for the calls."""
        for call in (*list(self._unanswered), *self._failed):
            call.outlasts_forks = True

    def _wait_for_all(self, deadline: Deadline | None) -> None:
        with self._lock:
            unanswered = list(self._unanswered)
        for call in reversed(unanswered):  # the last first, for one wait instead of many
            self.wait(call, deadline)

    def raise_failure(self) -> None:
        """Raises the error of the first call that failed and whose error was not raised yet.

        Raises:
            ShardcallError: if there is one; the message has the number of the others.
        """
        if not self._failed:
            return
        for call in tuple(self._failed):
            call.begin()
        with self._lock:
            roots = {call.root: None for call in self._failed}
            self._failed = []
        failed = [call for call in roots if call.is_failed and not call.is_raised]
        for call in reversed(failed):
            error = call.failure()
        if failed:
            assert error is not None
            others = {1: "", 2: "; another submitted call failed, too"}.get(
                len(failed), f"; {len(failed) - 1} other submitted calls failed, too"
            )
            raise with_message(error, error.message + others)

    def warn_of_unread_failures(self) -> None:
        """Warns, once, of each call that failed and whose results the caller has dropped."""
        for call in tuple(self._failed):
            if call.is_unread and not call.is_reported:
                call.is_reported = True
                error = call.failure()
                call.is_raised = False
                warnings.warn(f"nobody has read that {error}", FailedCallWarning, stacklevel=level_of_caller())

    def cancel(self) -> None:
        """Cancels all calls that were not answered yet, when the client closes."""
        with self._lock:
            self._closed = True
            unanswered = list(self._unanswered)
        for call in unanswered:
            if call._streamed is not None:
                call._streamed.cancel()

    def deleted(self, handles: Sequence[bytes]) -> None:
        """Cancels loops whose results are all deleted, and which no other call waits for.

        Args:
            handles: the handles of deleted arrays.
        """
        if self._loops:
            with self._lock:
                self._deleted.update(handle for handle in handles if handle in self._uses)
            self._stop_unread_loops()

    def stop_loops(self) -> None:
        """Cancels all loops, whose results nobody will read."""
        for call in list(self._loops):
            self._stop(call)

    def _stop_unread_loops(self) -> None:
        with self._lock:
            unread = [
                call
                for call in self._loops
                if all(handle in self._deleted and self._uses[handle] == 1 for handle in call.stops_without)
            ]
        for call in unread:
            self._stop(call)

    @staticmethod
    def _stop(call: PendingCall) -> None:
        call.is_raised = True
        if (streamed := call._streamed) is not None:
            streamed.cancel()

    def _answered(self, call: PendingCall, streamed: StreamRequest) -> None:
        answer, error = None, None
        try:
            answer = streamed.result(streamed.deadline)
        except ShardcallError as failure:
            error = failure
            error.__traceback__ = None
        except Exception as failure:  # noqa: BLE001  # else nobody would learn that the call ended
            error = InternalServerError(f"the answer cannot be read: {failure}")
        with self._lock:
            if call not in self._unanswered or call._streamed is not streamed:  # in a forked child; sent again
                return
            call._answer, call._error, call._streamed, call.is_done = answer, error, None, True
            if isinstance(error, ArrayLostError | MeshRestartedError):
                self.losses += 1
            self._remove(call)
            if error is None:
                call._depends_on, call.resend = (), None
            elif (root := call.root) is not call:
                root.results += call.results
            elif not (self._closed and isinstance(error, CallCancelledError)):
                self._add_failure(call)
        for waiting in tuple(call._waiting):
            waiting.set()
        if self._deleted:
            self._stop_unread_loops()  # this call may have been the last that waited for one

    def add_failure(self, call: PendingCall) -> None:
        """Adds a call that failed without being sent to those whose errors nobody has read."""
        with self._lock:
            self._add_failure(call)

    def _add_failure(self, call: PendingCall) -> None:
        check_held(self._lock)
        if len(self._failed) >= _MAX_ERRORS:
            self._failed = [failed for failed in self._failed if not failed.is_raised]
        if len(self._failed) < _MAX_ERRORS:  # the first ones explain the others
            self._failed.append(call)

    def _remove(self, call: PendingCall) -> None:
        check_held(self._lock)
        if call not in self._unanswered:
            return
        del self._unanswered[call]
        call.borrowed = ()
        self._loops.pop(call, None)
        for handle in call.arrays:
            self._uses[handle] -= 1
            if not self._uses[handle]:
                del self._uses[handle]
                self._deleted.discard(handle)


class _AnswerEvent(Wakeup):
    """The event of a wait, which a `cancellation.Cancellation` ends."""

    def cancel(self) -> None:
        self.set()
