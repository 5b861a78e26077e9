"""Calls that nobody waits for: their answers, their results, and the errors that nobody has read."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from shardcall._src.calls.result import placement_of
from shardcall._src.device_arrays.array_version import ArrayVersion, ReplacedValues
from shardcall._src.device_arrays.call_sites import Line, line_of_caller
from shardcall._src.display.meters import Meters
from shardcall._src.display.watches import REPORT_INTERVAL_S
from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import GRACE_S, Deadline
from shardcall._src.rpc.threads import check_not_exiting
from shardcall._src.rpc.wakeup import Wakeup
from shardcall._src.transfer.download import Answer
from shardcall._src.transfer.stream_request import StreamRequest
from shardcall_core.locks import check_held, lock
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import (
    ArrayLostError,
    DeadlineExceededError,
    FailedCallWarning,
    InternalServerError,
    MeshRestartedError,
    ShardcallError,
    with_message,
)
from shardcall_core.types.tracebacks import level_of_caller
from shardcall_core.wire.forks import MAX_FINISH_S, begin_anew_in_children

_HANDLE_BYTES = 16
_READ_HANDLES = 256
_MAX_ERRORS = 64


class PendingCall:
    """A call that was submitted.

    Attributes:
        arrays: the handles of its results and of its operands on the mesh.
        borrowed: its operands of other clients, until it is answered.
        results: its results, and those of calls that failed because of it, as long as the caller has them.
        first: the index of its first result in the answer, which may be that of a program of several calls.
        placed: the placement of its result, if it was run and not sent.
        stops_without: the handles of the results of a loop, or of a call that waits for one, which is cancelled when
            they are all deleted; empty for others.
        is_done: True if it was answered, or has failed.
        is_raised: True if its error was raised.
        is_reported: True if there was a warning of its error.
        outlasts_forks: True if a fork has waited for it long enough.
        located: returns its error with the lines of the caller's code in it; None for a call that is one line.
        resend: sends the calls of a program one by one that failed, or waits while another thread does, where this is
            one of them; None for any other, and once this one was sent.
        mesh: the mesh of its results, or what stands for it: the attribute of an earlier call, or an object of its own.
        replaced: the stand-ins of the values that its results replace, by their handles; until it is answered.
        written: as of `UnansweredCall`.

    Args:
        calls: the calls of the client.
        name: the name of the kernel.
        types: the operands' types.
        timeout_s: the timeout of the call.
        line: the line of the call; None for that of the present one.
        mesh: as the attribute; None for an object of its own.
    """

    def __init__(
        self,
        calls: PendingCalls,
        name: str,
        types: Sequence[Array | None],
        timeout_s: float,
        line: Line | None = None,
        mesh: Hashable | None = None,
    ) -> None:
        self.arrays: Sequence[bytes] = ()
        self.borrowed: Sequence[object] = ()
        self.results: list[weakref.ref[Any]] = []
        self.first = 0
        self.placed: MeshPlacement | None = None
        self.stops_without: Sequence[bytes] = ()
        self.is_done = self.is_raised = self.is_reported = self.outlasts_forks = False
        self.resend: Callable[[], object] | None = None
        self.located: Callable[[ShardcallError], ShardcallError] | None = None
        self.mesh: Hashable = object() if mesh is None else mesh
        self.replaced: dict[bytes, weakref.ref[ArrayVersion]] = {}
        self.written: weakref.ref[ReplacedValues] | None = None
        self.line = line or line_of_caller()
        self._calls = calls
        self._name = name
        self._types = types
        self._timeout_s = timeout_s
        self._depends_on: Sequence[PendingCall] = ()
        self._streamed: StreamRequest | None = None
        self._answer: Answer | None = None
        self._error: ShardcallError | None = None
        self._waiting: set[Wakeup] = set()

    @property
    def is_failed(self) -> bool:
        """True if it failed."""
        return self._error is not None

    @property
    def is_recorded(self) -> bool:
        """True if it is recorded and was not sent yet."""
        return False

    @property
    def is_undoable(self) -> bool:
        """True if it has not succeeded yet."""
        return self._error is not None or not self.is_done

    @property
    def is_undone(self) -> bool:
        """True if it failed, or the calls that it depends on did, and somebody has read the error."""
        root = self.root
        return root._error is not None and root.is_raised and root.resend is None and self.resend is None

    @property
    def is_unsent(self) -> bool:
        """True if it has no answer, and none is to come."""
        return not self.is_done and self._streamed is None

    @property
    def reason(self) -> str | None:
        """The reason of its error; None if it has not failed."""
        return None if self._error is None else self._error.reason

    @property
    def name(self) -> str:
        """Its function or its kernel."""
        return self._name

    @property
    def request_id(self) -> str:
        """The request id of the call that it is, or is a part of; empty while it is not sent."""
        streamed = self._streamed
        return "" if streamed is None else streamed.request_id

    @property
    def depends_on(self) -> Sequence[PendingCall]:
        """The calls that make its operands."""
        return self._depends_on

    def depend_on(self, calls: Sequence[PendingCall]) -> None:
        """Marks calls that are sent together with this one, and before it, as those that it depends on."""
        self._depends_on = [*self._depends_on, *calls]

    def fail(self, error: ShardcallError, *, is_raised: bool = False) -> None:
        """Fails a call that could not be sent; of one marked as raised only those learn who read its results."""
        error.__traceback__ = None
        with self._calls._lock:
            self._error, self.is_done, self.is_raised = error, True, is_raised
            self._calls._add_failure(self)
        self._calls._end_replacing(self, is_failed=True)

    @property
    def sent_result(self) -> bytes:
        """The handle of a result, if it is on the call stream or was answered; else empty."""
        streamed = self._streamed
        is_sent = self.is_done if streamed is None else streamed.number and not self.is_recorded
        return self.arrays[0] if is_sent and self.arrays else b""

    def replaces(self, before: ArrayVersion) -> None:
        """Adds values to `replaced`; of those of a recorded call, which may be computed by no other, what that does."""
        maker = before.pending if isinstance(before.pending, PendingCall) else None
        with self._calls._lock:
            if maker is not None and maker.is_recorded:
                replaced, maker.replaced = maker.replaced, {}
            else:
                replaced = {before.handle: weakref.ref(before)}
            self.replaced |= replaced
            self._calls._replacing |= dict.fromkeys(replaced, self)
        if maker is not None and not maker.is_recorded:
            maker.results += replaced.values()
        if self.is_done:
            self._calls._end_replacing(self, is_failed=self.is_failed)

    def run(self, placed: MeshPlacement | None) -> None:
        """Ends it as one that was run and not sent.

        Args:
            placed: the placement of its result.
        """
        self.placed, self.is_done = placed, True
        self.drop_replaced()

    def drop_replaced(self) -> None:
        """Has what its results replace deleted in any case: they are there, or nobody needs them."""
        self._calls._end_replacing(self, is_failed=False)

    def lose_in_fork(self) -> None:
        """Fails it in a forked child; its results stay lost, since what they have replaced would be old values."""
        self._error, self.is_done, self.resend = lost_in_fork(), True, None
        self.forget_replaced()

    def forget_replaced(self) -> None:
        """Forgets the values that its results have replaced, which is answered or lost."""
        for result in self.results:
            if (version := result()) is not None:
                version.earlier = None

    def cancel(self) -> None:
        """Cancels it, if it was sent and is not answered; nobody needs its error."""
        self.is_raised = True
        if (streamed := self._streamed) is not None:
            streamed.cancel()

    def begin(self) -> None:
        """Sends it, if it was not sent, or failed as part of a program."""
        if self.resend is not None and self._streamed is None:
            self.resend()

    @property
    def root(self) -> PendingCall:
        """The failed call because of which this one failed; itself if it depends on none."""
        root = self
        while failed := next((call for call in root._depends_on if call._error is not None), None):
            root = failed
        if root is not self and self._error is not None:
            self._depends_on = (root,)  # instead of the calls between, of which there may be any number
        return root

    def wait(self, deadline: Deadline | None = None) -> None:
        """Waits for the answer.

        Args:
            deadline: the end of the wait; None for that of the call.

        Raises:
            DeadlineExceededError: if there is no answer in time; the call continues.
            ShardcallError: of this call or of the one because of which it failed.
        """
        while True:
            if not self.is_done:
                self.begin()
                self.wait_answered(deadline)
            if self._answer is not None or self.placed is not None:
                return
            self.begin()
            if self.is_done and (error := self.failure()) is not None:  # else another thread has sent it again
                raise error

    def wait_answered(self, deadline: Deadline | None) -> None:
        """Waits until it is answered, or has failed.

        Args:
            deadline: the end of the wait; None for that of the call, whose error the server then sends.

        Raises:
            DeadlineExceededError: if there is no answer in time; the call continues.
            CallCancelledError: if the wait was cancelled.
            ClientClosedError: if Python exits.
        """
        if self.is_done:
            return
        check_not_exiting()
        deadline = deadline or Deadline(self._timeout_s + GRACE_S)
        waiting = _AnswerEvent()
        self._waiting.add(waiting)
        meters, watch = self._calls.meters, None
        try:
            cancellation.watch(waiting)
            while not self.is_done:
                cancellation.check()
                if deadline.is_exceeded():
                    raise DeadlineExceededError(
                        f"{self}, was not answered within {deadline.timeout_s:g} s; it continues: wait for longer, "
                        "timeout=…",
                        field="timeout",
                    )
                limit_s = REPORT_INTERVAL_S if watch is not None else meters.watch_after_s
                if waiting.wait(min(deadline.remaining_s(), limit_s)):
                    continue
                if watch is None:
                    watch = meters.watch(self.request_id, self._name)
                if watch is not None:
                    watch.update()
        finally:
            self._waiting.discard(waiting)
            if watch is not None:
                watch.close()

    def placement(self, index: int, deadline: Deadline | None) -> MeshPlacement:
        """Returns the placement of a result, after the answer; errors are those of `wait`."""
        self.wait(deadline)
        if self.placed is not None:
            return self.placed
        assert self._answer is not None
        return placement_of(self.first + index, self._answer)

    def failure(self) -> ShardcallError | None:
        """Returns a new error, to be raised, that names the call that failed; None if this one has not failed."""
        error = self._error
        if error is None:
            return None
        if self.root is not self:
            return self.dependent_failure(error, f"{self}, failed: ")
        self.is_raised = True
        error = error if self.located is None else self.located(error)
        return with_message(error, f"{self}, failed: {error.message}")

    def dependent_failure(self, error: ShardcallError, prefix: str = "") -> ShardcallError:
        """Returns a new error, to be raised, of a call that failed because this one, or the root of it, did.

        It is the error of that one, except that arrays are lost if the mesh restarted.

        Args:
            error: the error of that call.
            prefix: the beginning of its message.
        """
        failure = self.root.failure()
        if failure is None:  # another thread has sent that one again
            return error
        if isinstance(failure, MeshRestartedError) and isinstance(error, ArrayLostError):
            lost = with_message(error, prefix + error.message)
            lost.__cause__ = failure
            return lost
        return failure

    def __str__(self) -> str:
        types = ", ".join(str(operand_type) for operand_type in self._types if operand_type is not None)
        return f"{self._name} of {types or 'no arrays'}, submitted at {self.line}"


class PendingCalls:
    """The calls that a client has submitted; safe to use from several threads at once.

    Args:
        meters: the progress of the client's calls.

    Attributes:
        losses: the number of calls that failed because the mesh had lost an array.
        meters: as above.
        deletes_replaced: whether the server deletes what a call replaces, which older ones leave to the client.
        keep: keeps an array that a call has not replaced, by its handle, while the object that stands for it exists.
    """

    def __init__(self, meters: Meters | None = None) -> None:
        self.meters = meters or Meters(False)
        self.deletes_replaced = False
        self.keep: Callable[[bytes, ArrayVersion | None], object] = lambda *_: None
        self._unanswered: dict[PendingCall, None] = {}
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Resets the object in a forked child: the answers go to its parent."""
        for call in self._unanswered:
            call.lose_in_fork()
        self._lock = lock("the lock of the pending calls")  # guards all of these; nobody is woken under it
        self._unanswered = {}
        self._uses: dict[bytes, int] = {}
        self._loops: dict[PendingCall, None] = {}  # unanswered ones
        self._replacing: dict[bytes, PendingCall] = {}  # by the handles of what they replace if they succeed
        self._deleted: set[bytes] = set()  # of their results
        self._handles: list[bytes] = []
        self._failed: list[PendingCall] = []
        self.losses = 0

    def results(self) -> list[Any]:
        """Returns the results, which the caller has, of the calls without an answer."""
        with self._lock:
            unanswered = list(self._unanswered)
        return [version for call in unanswered for result in call.results if (version := result()) is not None]

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
                call.cancel()  # it may have been sent
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

    def wait_for_writes(self, deadline: Deadline) -> bool:
        """Waits for the calls after which the server deletes what they replace; returns True if there were any.

        Args:
            deadline: the end of the wait.

        Raises:
            DeadlineExceededError: if they are not answered in time.
        """
        calls = dict.fromkeys([*self._replacing.values()])
        for call in calls:
            call.wait_answered(deadline)
        return bool(calls)

    def replacement_of(self, handle: bytes) -> bytes | None:
        """Returns the result of the call that has to succeed before an array is deleted.

        Args:
            handle: the handle of the array.

        Returns:
            The handle of the result; empty if the array is deleted in any case; None if it is not deleted yet.
        """
        call = self._replacing.get(handle)
        if call is None or (call.is_done and not call.is_failed):
            return b""
        return (self.deletes_replaced and call.sent_result) or None

    def names(self, limit: int) -> dict[str, str]:
        """Returns the request ids and names of the oldest unanswered calls.

        Args:
            limit: the maximum number of them.
        """
        names: dict[str, str] = {}
        for call in list(self._unanswered):
            if len(names) >= limit:
                break
            if request_id := call.request_id:
                names.setdefault(request_id, call.name)
        return names

    def is_used(self, handle: bytes) -> bool:
        """Returns True for an operand or a result of a call that was not answered yet."""
        return handle in self._uses

    def synchronize(self, deadline: Deadline | None) -> None:
        """Waits for all calls that were submitted before.

        Args:
            deadline: the end of the wait; None for those of the calls.

        Raises:
            DeadlineExceededError: if not all are answered in time; they continue.
            ShardcallError: of the first call that failed and whose error was not raised yet; the message has the number
                of the others.
        """
        self.finish(deadline)
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
            call.wait_answered(deadline)

    def warn_of_unread_failures(self) -> None:
        """Warns, once, of each call that failed and whose results the caller has dropped."""
        for call in tuple(self._failed):
            is_unread = not call.is_raised and not any(result() is not None for result in call.results)
            if call.is_failed and is_unread and not call.is_reported:
                call.is_reported = True
                error = call.failure()
                call.is_raised = False
                warnings.warn(f"nobody has read that {error}", FailedCallWarning, stacklevel=level_of_caller())

    def cancel(self) -> None:
        """Cancels all calls that were not answered yet, when the client closes."""
        with self._lock:
            unanswered = list(self._unanswered)
        for call in unanswered:
            call.cancel()

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
            call.cancel()

    def _stop_unread_loops(self) -> None:
        with self._lock:
            unread = [
                call
                for call in self._loops
                if all(handle in self._deleted and self._uses[handle] == 1 for handle in call.stops_without)
            ]
        for call in unread:
            call.cancel()

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
            else:
                self._add_failure(call)
        if error is None:
            call.forget_replaced()
        self._end_replacing(call, is_failed=error is not None)
        for waiting in tuple(call._waiting):
            waiting.set()
        if self._deleted:
            self._stop_unread_loops()  # this call may have been the last that waited for one

    def _end_replacing(self, call: PendingCall, *, is_failed: bool) -> None:
        """Keeps what a call was to replace if it has failed; another thread may have sent it again meanwhile."""
        with self._lock:
            replaced, call.replaced = call.replaced, {}
        for handle, stand_in in replaced.items():
            version = stand_in() if is_failed else None
            if version is not None:
                self.keep(handle, version)  # before it may be deleted in any case
            if self._replacing.get(handle) is call:
                del self._replacing[handle]
            if version is None and is_failed:
                self.keep(handle, None)
        if replaced and not is_failed:
            self.deleted([*replaced])

    def _add_failure(self, call: PendingCall) -> None:
        """Adds a call that failed to those whose errors nobody has read."""
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


def lost_in_fork() -> ArrayLostError:
    """Returns the error of a call that was not answered when the process was forked, for the child."""
    return ArrayLostError(
        f"the process was forked before the call was answered, for which a fork waits up to {MAX_FINISH_S:g} s; call "
        "client.synchronize() before the fork"
    )
