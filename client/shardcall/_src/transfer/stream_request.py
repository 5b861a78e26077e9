"""A call of a call stream."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import grpc

from shardcall._src.display.meters import Meters
from shardcall._src.display.watches import REPORT_INTERVAL_S
from shardcall._src.rpc import cancellation
from shardcall._src.rpc.deadline import GRACE_S, Deadline
from shardcall._src.rpc.status import ItemStatus
from shardcall._src.rpc.threads import surviving
from shardcall._src.rpc.wakeup import Wakeup
from shardcall._src.transfer.download import Answer, broken, unary_answer
from shardcall._src.transfer.stream_items import PreparedKey
from shardcall.v1 import call_stream_pb2, kernel_service_pb2
from shardcall_core.types.errors import CallCancelledError, DeadlineExceededError, ProtocolError, ShardcallError


class RequestStream(Protocol):
    """The stream of a call."""

    def cancel(self, call: StreamRequest, failure: grpc.RpcError | CallCancelledError) -> None:
        """Cancels a call that is not done, which then has this failure."""

    @property
    def meters(self) -> Meters:
        """The progress of the client's calls."""

    def error(
        self, call: StreamRequest, failure: grpc.RpcError | CallCancelledError, deadline: Deadline
    ) -> ShardcallError:
        """Returns the error of a failed call."""

    def add_versions(self, error: ShardcallError) -> None:
        """Adds the versions of server and client to the refusal of an answer."""


class StreamRequest:
    """A call of a call stream, a read or a put; safe to use from several threads at once.

    Attributes:
        done: True once the call has been answered, has failed or was cancelled.
        awaited: True while a thread waits for the answer, or after it has.
        answered: True if the server answered the call itself, with results or an error.
        refused: True if the server refused the stream, so that the call may be sent by another method.
        failure: the status of a call that failed.

    Args:
        stream: the stream, which cancels the call.
        request: a frame with this call only, in which its number and slot are set when it is sent.
        item: the call, the read or the put in the frame.
        prepared_key: the parts of the call that its slot has; None for the others.
        operand_bytes: the bytes of the operands in the request.
        kernel: the name of the kernel.
        deadline: the deadline of the call.
    """

    __slots__ = (
        "_callbacks",
        "_latch",
        "_stream",
        "answered",
        "awaited",
        "deadline",
        "done",
        "failure",
        "item",
        "kernel",
        "number",
        "operand_bytes",
        "plan",
        "prepared_key",
        "refused",
        "repeated",
        "request",
        "response",
    )

    def __init__(
        self,
        stream: RequestStream,
        request: call_stream_pb2.CallStreamRequest,
        item: call_stream_pb2.StreamedCall | call_stream_pb2.ReadArray | call_stream_pb2.PutStreamedArray,
        prepared_key: PreparedKey | None,
        operand_bytes: int,
        kernel: str,
        deadline: Deadline,
    ) -> None:
        self._stream = stream
        # An event: released, by any thread, once the call is done. A `concurrent.futures.Future`, which creates a
        # condition variable with a reentrant lock, would take a tenth of a call.
        self._latch = threading.Lock()
        self._latch.acquire()
        self._callbacks: list[Callable[[StreamRequest], object]] = []
        self.request = request
        self.item = item
        self.prepared_key = prepared_key
        self.operand_bytes = operand_bytes
        self.kernel = kernel
        self.deadline = deadline
        self.number = self.repeated = 0
        self.done = self.answered = self.refused = self.awaited = False
        self.response = self.plan = b""
        self.failure: grpc.RpcError | CallCancelledError | None = None

    @property
    def request_id(self) -> str:
        """The request id."""
        return self.item.request_id

    @property
    def is_read(self) -> bool:
        """True for the read of an array."""
        return isinstance(self.item, call_stream_pb2.ReadArray)

    @property
    def has_named_results(self) -> bool:
        """True if later calls may use the results before the answer."""
        return isinstance(self.item, call_stream_pb2.StreamedCall) and bool(self.item.result_handles)

    def result(self, deadline: Deadline) -> Answer:
        """Waits for the answer and returns it; that of a read has the array as its result.

        Cancels the call at the deadline, on Ctrl-C, and with the `Cancellation` of the enclosing block.

        Raises:
            ShardcallError: of the class that fits.
        """
        if not self.done:
            self._wait(deadline)
        if self.failure is not None:
            raise self._stream.error(self, self.failure, deadline) from None
        try:
            if not self.response:
                raise broken("an item has neither a response nor a status")
            return unary_answer(kernel_service_pb2.ExecuteResponse.FromString(self.response), plan=self.plan)
        except ProtocolError as error:
            self._stream.add_versions(error)
            raise

    def _wait(self, deadline: Deadline) -> None:
        self.awaited = True
        try:
            cancellation.watch(self)
            left_s = deadline.remaining_s() + GRACE_S
            # A signal that arrives just before a wait does not interrupt it, so that a wait is short.
            if self._latch.acquire(timeout=min(left_s, self._stream.meters.watch_after_s)) or self._wait_long(left_s):
                self._latch.release()  # for other threads that wait
        except BaseException:
            self.cancel()
            raise
        if not self.done:
            self._stream.cancel(self, ItemStatus(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"))

    def _wait_long(self, left_s: float) -> bool:
        """Waits on, and shows the progress where somebody looks; returns False without an answer in time.

        Args:
            left_s: the time left before the first wait, in seconds.
        """
        meters = self._stream.meters
        ends_at = time.monotonic() + left_s - meters.watch_after_s
        watch = meters.watch("" if self.is_read else self.request_id, self.kernel)
        limit_s = meters.watch_after_s if watch is None else REPORT_INTERVAL_S
        try:
            while not self.done and (left_s := ends_at - time.monotonic()) > 0:  # `notify` may have been interrupted
                if watch is not None:
                    watch.update()
                if self._latch.acquire(timeout=max(0.0, min(left_s, limit_s))):
                    return True
            return False
        finally:
            if watch is not None:
                watch.close()

    def add_done_callback(self, callback: Callable[[StreamRequest], object]) -> None:
        """Calls a function with this call once it is done, in any thread; at once if it is.

        The function must neither wait nor raise.
        """
        self._callbacks.append(callback)
        if self.done:
            self._call_back()

    def cancel(self) -> None:
        """Cancels the call; does nothing if it is done."""
        self._stream.cancel(self, CallCancelledError("the call was cancelled", status=grpc.StatusCode.CANCELLED))

    def drop_callbacks(self) -> None:
        """Calls no function back, in a forked child."""
        self._callbacks.clear()

    def notify(self) -> None:
        """Wakes the threads that wait, and calls back, once after `done` was set."""
        self._latch.release()
        if self._callbacks:
            self._call_back()

    def _call_back(self) -> None:
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.pop(0)
            except IndexError:  # another thread was faster
                return
            with surviving():  # others are to be notified
                callback(self)


class SendWaiter:
    """A call that waits until fewer calls are unanswered."""

    def __init__(self) -> None:
        self.event = Wakeup()  # set when the call may be sent, and by `cancel`
        self.abandoned = False

    def cancel(self) -> bool:
        """Stops the wait."""
        self.event.set()
        return True


def fail_calls(calls: Iterable[StreamRequest], failure: grpc.RpcError | CallCancelledError) -> list[StreamRequest]:
    """Fails calls that are not done, and returns them; `StreamRequest.notify` must follow."""
    failed = [call for call in calls if not call.done]
    for call in failed:
        call.failure, call.done = failure, True
    return failed


def window_full(deadline: Deadline, max_calls: int, max_bytes: int) -> DeadlineExceededError:
    """Returns the error of a call that could not be sent, since too many calls or bytes were unanswered."""
    return DeadlineExceededError(
        f"the call's {deadline.timeout_s:g} s passed while it waited: {max_calls:,} calls or {max_bytes:,} bytes of "
        "this client are unanswered, the most that its call stream may have; give it a longer timeout, or make fewer "
        "calls at once",
        field="timeout",
    )
