"""A call that was submitted: its answer or its error, and its results."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from shardcall._src.calls.result import placement_of
from shardcall._src.device_arrays.call_sites import line_of_caller
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.wakeup import Wakeup
from shardcall._src.transfer.download import Answer
from shardcall._src.transfer.stream_request import StreamRequest
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.arrays import Array
from shardcall_core.types.errors import ArrayLostError, MeshRestartedError, ShardcallError, with_message
from shardcall_core.wire.forks import MAX_FINISH_S


class CallsOfClient(Protocol):
    """The calls that a client has submitted."""

    def wait(self, call: PendingCall, deadline: Deadline | None) -> None:
        """Waits until a call is answered, or has failed."""

    def add_failure(self, call: PendingCall) -> None:
        """Adds a call that failed without being sent to those whose errors nobody has read."""


class PendingCall:
    """A call that was submitted.

    Attributes:
        arrays: the handles of its results and of its operands on the mesh.
        borrowed: its operands of other clients, until it is answered.
        results: its results, and those of calls that failed because of it, as long as the caller has them.
        stops_without: the handles of the results of a loop, or of a call that waits for one, which is cancelled when
            they are all deleted; empty for others.
        is_raised: True if its error was raised.
        is_reported: True if there was a warning of its error.
        outlasts_forks: True if a fork has waited for it long enough.
        located: returns its error with the lines of the caller's code in it.
        resend: sends the calls of a program one by one that failed, where this is one of them; None for any other.
        mesh: stands for the mesh of its results, which is not known.

    Args:
        calls: the calls of the client.
        name: the name of the kernel.
        types: the operands' types.
        timeout_s: the timeout of the call.
        line: the file and line of the call; empty for those of the present one.
    """

    def __init__(
        self, calls: CallsOfClient, name: str, types: Sequence[Array | None], timeout_s: float, line: str = ""
    ) -> None:
        self.arrays: Sequence[bytes] = ()
        self.borrowed: Sequence[object] = ()
        self.results: list[weakref.ref[Any]] = []
        self.stops_without: Sequence[bytes] = ()
        self.is_raised = self.is_reported = self.outlasts_forks = False
        self.resend: Callable[[], object] | None = None
        self.located: Callable[[ShardcallError], ShardcallError] = _as_it_is
        self.mesh: Hashable = object()
        self._calls = calls
        self._name = name
        self._types = types
        self._timeout_s = timeout_s
        self._line = line or line_of_caller()
        self._depends_on: Sequence[PendingCall] = ()
        self._streamed: StreamRequest | None = None
        self._answer: Answer | None = None
        self._error: ShardcallError | None = None
        self._waiting: set[Wakeup] = set()

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
    def is_unread(self) -> bool:
        """True if it failed and its error was not raised, and the caller has no result to learn of it by."""
        return self.is_failed and not self.is_raised and not any(result() is not None for result in self.results)

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

    def retry(self) -> None:
        """Sends the calls of a program one by one if it failed."""
        if self._error is not None and self.resend is not None:
            self.resend()

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

    def wait_answered(self, deadline: Deadline | None) -> None:
        """Waits until it is answered, or has failed, as `PendingCalls.wait`."""
        self._calls.wait(self, deadline)

    def failure(self) -> ShardcallError | None:
        """Returns a new error, to be raised, that names the call that failed; None if this one has not failed."""
        if self._error is None:
            return None
        if self.root is not self:
            return self.root.dependent_failure(self._error, f"{self}, failed: ")
        self.is_raised = True
        error = self.located(self._error)
        return with_message(error, f"{self}, failed: {error.message}")

    def dependent_failure(self, error: ShardcallError, prefix: str = "") -> ShardcallError:
        """Returns a new error, to be raised, of a call that failed because this one did.

        It is the error of this one, except that arrays are lost if the mesh restarted.

        Args:
            error: the error of that call.
            prefix: the beginning of its message.
        """
        failure = self.failure()
        assert failure is not None
        if isinstance(failure, MeshRestartedError) and isinstance(error, ArrayLostError):
            lost = with_message(error, prefix + error.message)
            lost.__cause__ = failure
            return lost
        return failure

    def __str__(self) -> str:
        types = ", ".join(str(operand_type) for operand_type in self._types if operand_type is not None)
        return f"{self._name} of {types or 'no arrays'}, submitted at {self._line}"


def lost_in_fork() -> ArrayLostError:
    """Returns the error of a call that was not answered when the process was forked, for the child."""
    return ArrayLostError(
        f"the process was forked before the call was answered, for which a fork waits up to {MAX_FINISH_S:g} s; call "
        "client.synchronize() before the fork"
    )


def _as_it_is(error: ShardcallError) -> ShardcallError:
    return error


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
        """Sends the call again by itself if it failed as part of a program."""
        self.call.retry()

    def replace(self, other: SubmittedResult) -> None:
        """Makes this the result of another call."""
        self.call, self._index = other.call, other._index

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
        self.call.wait_answered(deadline)
        self.begin()
        answer = self.call.wait(deadline)
        return placement_of(self._index, answer)
