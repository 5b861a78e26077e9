"""Calls that were submitted: their answers, and the errors that nobody has waited for."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from shardcall._src.calls.result import placement_of
from shardcall._src.device_arrays.array_version import PendingResult
from shardcall._src.device_arrays.placement import MeshPlacement
from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import GRACE_S, Deadline
from shardcall._src.transfer.download import Answer
from shardcall._src.transfer.streamed_call import StreamedCall
from shardcall._src.types.arrays import Array
from shardcall._src.types.errors import (
    ArrayLostError,
    CallCancelledError,
    DeadlineExceededError,
    InternalServerError,
    MeshRestartedError,
    ShardcallError,
    with_message,
)
from shardcall._src.wire.forks import begin_anew_in_children

_HANDLE_BYTES = 16
_READ_HANDLES = 256
_MOST_ERRORS = 64
_MOST_WAIT_S = 0.5  # a signal that arrives just before a wait does not interrupt it
_PACKAGE = __name__.partition(".")[0]


class PendingCall:
    """A call that was submitted.

    Attributes:
        arrays: the handles of its results and of its operands on the mesh.
        is_raised: True if its error was raised.
        mesh: stands for the mesh of its results, which is not known.

    Args:
        calls: the calls of the client.
        name: the name of the kernel.
        types: the operands' types.
        timeout_s: the timeout of the call.
        line: the file and line of the call; empty for those of the present one.
    """

    def __init__(
        self, calls: PendingCalls, name: str, types: Sequence[Array | None], timeout_s: float, line: str = ""
    ) -> None:
        self.arrays: Sequence[bytes] = ()
        self.is_raised = False
        self.mesh: Hashable = object()
        self._calls = calls
        self._name = name
        self._types = types
        self._timeout_s = timeout_s
        self._line = line or _line_of_caller()
        self._depends_on: Sequence[PendingCall] = ()
        self._streamed: StreamedCall | None = None
        self._answer: Answer | None = None
        self._error: ShardcallError | None = None
        self._waiting: set[threading.Event] = set()

    @property
    def is_done(self) -> bool:
        """True if it was answered."""
        return self._answer is not None or self._error is not None

    @property
    def is_failed(self) -> bool:
        """True if it failed."""
        return self._error is not None

    @property
    def is_sent(self) -> bool:
        """True if it was sent, or has failed."""
        return self._streamed is not None or self.is_done

    @property
    def reason(self) -> str | None:
        """The reason of its error; None if it has not failed."""
        return None if self._error is None else self._error.reason

    def depend_on(self, calls: Sequence[PendingCall]) -> None:
        """Marks calls that are sent together with this one, and before it, as those that it depends on."""
        self._depends_on = [*self._depends_on, *calls]

    def fail(self, error: ShardcallError) -> None:
        """Fails a call that could not be sent."""
        error.__traceback__ = None
        self._error, self.is_raised = error, False
        self._calls.add_failure(self)

    @property
    def root(self) -> PendingCall:
        """The failed call because of which this one failed; itself if it depends on none."""
        root = self
        while failed := next((call for call in root._depends_on if call._error is not None), None):
            root = failed
        if root is not self:
            self._depends_on = (root,)  # instead of the calls between, of which there may be any number
        return root

    def wait(self, deadline: Deadline | None = None) -> Answer:
        """Returns the answer.

        Args:
            deadline: the end of the wait; None for that of the call.

        Raises:
            DeadlineExceededError: if there is no answer in time; the call continues.
            ShardcallError: of this call or of the one because of which it failed.
        """
        self._calls.wait(self, deadline)
        if (error := self.failure()) is not None:
            raise error
        assert self._answer is not None
        return self._answer

    def failure(self) -> ShardcallError | None:
        """Returns a new error, to be raised, that names the call that failed; None if this one has not failed."""
        if self._error is None:
            return None
        if self.root is not self:
            return self.root.dependent_failure(self._error, f"{self}, failed: ")
        self.is_raised = True
        return with_message(self._error, f"{self}, failed: {self._error.message}")

    def dependent_failure(self, error: ShardcallError, prefix: str = "") -> ShardcallError:
        """Returns a new error, to be raised, of a call that failed because this one did.

        It is the error of this one, except that arrays are lost if the mesh restarted.

        Args:
            error: the error of that call.
            prefix: the beginning of its message.
        """
        own = self.failure()
        assert own is not None
        if isinstance(own, MeshRestartedError) and isinstance(error, ArrayLostError):
            lost = with_message(error, prefix + error.message)
            lost.__cause__ = own
            return lost
        return own

    def __str__(self) -> str:
        types = ", ".join(str(kind) for kind in self._types if kind is not None)
        return f"{self._name} of {types or 'no arrays'}, submitted at {self._line}"


class PendingCalls:
    """The calls that a client has submitted; safe to use from several threads at once."""

    def __init__(self) -> None:
        self._unanswered: dict[PendingCall, None] = {}
        self._closed = False
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Resets the object in a forked child: the answers go to its parent."""
        for call in self._unanswered:
            call._error = ArrayLostError("the process was forked before the answer; call client.synchronize() first")
        self._lock = threading.Lock()
        self._unanswered = {}
        self._uses: dict[bytes, int] = {}
        self._handles: list[bytes] = []
        self._failed: list[PendingCall] = []

    def send(
        self,
        calls: Sequence[PendingCall],
        send: Callable[[Callable[[StreamedCall], None]], object],
        handles: Sequence[bytes],
        pending: Sequence[PendingResult],
    ) -> None:
        """Sends a call, or several as one.

        Args:
            calls: the calls.
            send: sends them, after passing it to its argument.
            handles: the handles of its results and of its operands on the mesh.
            pending: the operands that are results of submitted calls.

        Raises:
            ShardcallError: as ``send`` raises it.
        """
        depends_on = [result.call for result in pending if isinstance(result, SubmittedResult)]
        try:
            with self._lock:
                for call in calls:
                    call.arrays, call._depends_on = handles, [*depends_on, *call._depends_on]
                    for handle in handles:
                        self._uses[handle] = self._uses.get(handle, 0) + 1
                    self._unanswered[call] = None
            send(partial(self._sending, calls))
        except BaseException:
            for call in calls:
                call.is_raised = True
                if (streamed := call._streamed) is not None:
                    streamed.cancel()  # it may have been sent
                with self._lock:
                    self._remove(call)
            raise

    def _sending(self, calls: Sequence[PendingCall], streamed: StreamedCall) -> None:
        for call in calls:
            call._streamed = streamed
        for call in calls:
            streamed.add_done_callback(partial(self._answered, call))

    def new_handles(self, count: int) -> list[bytes]:
        """Returns new handles: random bytes, read from the system many at a time."""
        with self._lock:
            if len(self._handles) < count:
                random = os.urandom(_HANDLE_BYTES * max(_READ_HANDLES, count))
                self._handles = [random[i : i + _HANDLE_BYTES] for i in range(0, len(random), _HANDLE_BYTES)]
            return [self._handles.pop() for _ in range(count)]

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
        """
        if call.is_done:
            return
        deadline = deadline or Deadline(call._timeout_s + GRACE_S)
        waiting = _AnswerEvent()
        call._waiting.add(waiting)
        try:
            cancellation.watch(waiting)
            while not call.is_done:
                cancellation.check()
                if deadline.is_over():
                    raise DeadlineExceededError(
                        f"{call}, was not answered within {deadline.timeout_s:g} s; it continues: wait for longer, "
                        "timeout=…",
                        field="timeout",
                    )
                waiting.wait(min(deadline.remaining_s(), _MOST_WAIT_S))
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
        with self._lock:
            unanswered = list(self._unanswered)
        for call in reversed(unanswered):  # the last first, for one wait instead of many
            self.wait(call, deadline)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises the error of the first call that failed and whose error was not raised yet.

        Raises:
            ShardcallError: if there is one; the message has the number of the others.
        """
        if not self._failed:
            return
        with self._lock:
            roots = {call.root: None for call in self._failed}
            self._failed = []
        failed = [call for call in roots if not call.is_raised]
        for call in reversed(failed):
            error = call.failure()
        if failed:
            assert error is not None
            others = {1: "", 2: "; another submitted call failed, too"}.get(
                len(failed), f"; {len(failed) - 1} other submitted calls failed, too"
            )
            raise with_message(error, error.message + others)

    def cancel(self) -> None:
        """Cancels all calls that were not answered yet, when the client closes."""
        with self._lock:
            self._closed = True
            unanswered = list(self._unanswered)
        for call in unanswered:
            if call._streamed is not None:
                call._streamed.cancel()

    def _answered(self, call: PendingCall, streamed: StreamedCall) -> None:
        answer, error = None, None
        try:
            answer = streamed.result(streamed.deadline)
        except ShardcallError as failure:
            error = failure
            error.__traceback__ = None
        except Exception as failure:  # noqa: BLE001  # else nobody would learn that the call ended
            error = InternalServerError(f"the answer cannot be read: {failure}")
        with self._lock:
            if call not in self._unanswered:  # in a forked child
                return
            call._answer, call._error, call._streamed = answer, error, None
            self._remove(call)
            if error is None:
                call._depends_on = ()
            elif call.root is call and not (self._closed and isinstance(error, CallCancelledError)):
                self._add_failure(call)
        for waiting in tuple(call._waiting):
            waiting.set()

    def add_failure(self, call: PendingCall) -> None:
        """Adds a call that failed without being sent to those whose errors nobody has read."""
        with self._lock:
            self._add_failure(call)

    def _add_failure(self, call: PendingCall) -> None:
        if len(self._failed) >= _MOST_ERRORS:
            self._failed = [failed for failed in self._failed if not failed.is_raised]
        if len(self._failed) < _MOST_ERRORS:  # the first ones explain the others
            self._failed.append(call)

    def _remove(self, call: PendingCall) -> None:
        if call not in self._unanswered:
            return
        del self._unanswered[call]
        for handle in call.arrays:
            self._uses[handle] -= 1
            if not self._uses[handle]:
                del self._uses[handle]


class SubmittedResult:
    """A result of a submitted call.

    Args:
        call: the call.
        index: the index of the result.
        mesh: the mesh that it will be on, or what stands for it, the attribute of an earlier call; None for this one's.
    """

    def __init__(self, call: PendingCall, index: int, mesh: Hashable | None = None) -> None:
        self.call = call
        self.mesh = call.mesh if mesh is None else mesh
        self._index = index

    def begin(self) -> None:
        """Does nothing: the call was sent."""

    @property
    def is_done(self) -> bool:
        """True if the call was answered."""
        return self.call.is_done

    @property
    def is_failed(self) -> bool:
        """True if the call failed."""
        return self.call.is_failed

    def dependent_failure(self, error: ShardcallError) -> ShardcallError:
        """Returns the error of a call that failed because this one did, for raising it."""
        return self.call.root.dependent_failure(error)

    def wait(self, deadline: Deadline | None) -> MeshPlacement:
        """Returns the placement, after the answer."""
        return placement_of(self._index, self.call.wait(deadline))


class _AnswerEvent(threading.Event):
    """The event of a wait, which a `cancellation.Cancellation` ends."""

    def cancel(self) -> None:
        self.set()


def _line_of_caller() -> str:
    """Returns the file and line outside this package that the present call comes from."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
