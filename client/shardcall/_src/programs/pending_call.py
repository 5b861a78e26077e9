"""A call that nobody waits for: its answer or its error, and its results."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from shardcall._src.calls.result import placement_of
from shardcall._src.device_arrays.call_sites import Line, line_of_caller
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
        first: the index of its first result in the answer, which may be that of a program of several calls.
        placed: the placement of its result, if it was run and not sent.
        stops_without: the handles of the results of a loop, or of a call that waits for one, which is cancelled when
            they are all deleted; empty for others.
        is_done: True if it was answered, or has failed.
        is_raised: True if its error was raised.
        is_reported: True if there was a warning of its error.
        outlasts_forks: True if a fork has waited for it long enough.
        located: returns its error with the lines of the caller's code in it.
        resend: sends the calls of a program one by one that failed, or waits while another thread does, where this is
            one of them; None for any other, and once this one was sent.
        mesh: the mesh of its results, or what stands for it: the attribute of an earlier call, or an object of its own.

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
        calls: CallsOfClient,
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
        self.located: Callable[[ShardcallError], ShardcallError] = _as_it_is
        self.mesh: Hashable = object() if mesh is None else mesh
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
    def is_unsent(self) -> bool:
        """True if it has no answer, and none is to come."""
        return not self.is_done and self._streamed is None

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

    def fail(self, error: ShardcallError, *, is_raised: bool = False) -> None:
        """Fails a call that could not be sent; of one marked as raised only those learn who read its results."""
        error.__traceback__ = None
        self._error, self.is_done, self.is_raised = error, True, is_raised
        self._calls.add_failure(self)

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
        if root is not self:
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
            self._calls.wait(self, deadline)
            if self._answer is not None or self.placed is not None:
                return
            self.begin()
            if self.is_done and (error := self.failure()) is not None:  # else another thread has sent it again
                raise error

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
        error = self.located(error)
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


def lost_in_fork() -> ArrayLostError:
    """Returns the error of a call that was not answered when the process was forked, for the child."""
    return ArrayLostError(
        f"the process was forked before the call was answered, for which a fork waits up to {MAX_FINISH_S:g} s; call "
        "client.synchronize() before the fork"
    )


def _as_it_is(error: ShardcallError) -> ShardcallError:
    return error
