"""One call stream: its items, its window and its answers."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, TypeVar

import grpc
from google.protobuf.message import DecodeError

from shardcall.v1 import call_stream_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.locks import check_held, lock
from shardcall_server.frontend.access.principals import Principal, Scope
from shardcall_server.frontend.memory.resident_array_table import check_handle
from shardcall_server.frontend.rpc.coroutines import Stage, Task, used_s
from shardcall_server.frontend.rpc.processor_shares import ADVANCE_S
from shardcall_server.frontend.rpc.server_call import ServerCall, end_rpc
from shardcall_server.frontend.rpc.unknown_fields import refuse_unknown_fields, refused_item
from shardcall_server.frontend.services.answer_queue import AnswerQueue
from shardcall_server.frontend.services.call_outcomes import failed_call
from shardcall_server.frontend.services.result_window import ResultWindow
from shardcall_server.frontend.services.stream_item import StreamItem, detached_copy, prepared_call, refuse_counts
from shardcall_server.frontend.services.stream_memory import PREPARED_FACTOR, StreamMemory
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim, StreamedArrays
from shardcall_server.frontend.services.streamed_call import (
    CallOutcome,
    PreparedSlot,
    StreamedCall,
    StreamedWork,
    StreamServices,
    run_streamed,
)
from shardcall_server.frontend.services.streamed_transfers import StreamedPut, StreamedRead
from shardcall_server.link.wire import MAX_OPERANDS

METHOD = "CallStream"
PATH = f"/shardcall.v1.KernelService/{METHOD}"

MAX_PREPARED_CALLS = 256

_MAX_ITEMS = 4096  # of one frame
_MAX_CANCELLED = 1024  # by one item
_ITEMS_AT_ONCE = 64  # before the client may have to wait
_SMALL_FRAME_BYTES = 64 << 10
_MAX_TRACE_CHARACTERS = 1024

M = TypeVar("M", call_stream_pb2.StreamedCall, call_stream_pb2.ReadArray, call_stream_pb2.PutStreamedArray)


@dataclass(frozen=True)
class StreamLimits:
    """The limits of one call stream.

    Attributes:
        max_calls: unanswered calls.
        max_bytes: bytes of their operands.
        max_prepared_calls: slots for prepared calls.
        max_call_s: the longest duration of a call.
    """

    max_calls: int
    max_bytes: int
    max_prepared_calls: int
    max_call_s: float


class ServerCallStream:
    """One call stream. A thread reads its items and starts their calls; another sends the answers.

    Args:
        services: the parts of the server.
        limits: the limits of the stream.
        context: gRPC's context of the stream.
        principal: the caller; None without authentication.
        tokens_version: the version of the tokens before the caller was admitted.
    """

    def __init__(
        self,
        services: StreamServices,
        limits: StreamLimits,
        context: grpc.ServicerContext,
        principal: Principal | None,
        tokens_version: int,
    ) -> None:
        self._services = services
        self._limits = limits
        self._context = context
        self._metadata = context.invocation_metadata()
        self._peer: str = context.peer()
        self._principal = principal
        self._share = services.shares.of(self.owner)
        self._prepared: dict[int, PreparedSlot | CallError] = {}
        self._prepared_bytes: dict[int, int] = {}
        self._arrays = StreamedArrays(services.array_table)
        self._memory = StreamMemory(services.budget, self.owner)
        self._items: dict[int, StreamItem] = {}
        self._nbytes = 0
        # Guards the items, the window and the timer, whose lock is taken under it.
        self._lock = lock("the lock of a call stream", 40)
        self._answers = AnswerQueue()
        self._results = ResultWindow(limits.max_bytes, self._memory, services.timer)
        self._refused = 0
        self._item_number = 0
        self._tokens_version = tokens_version
        self._expired: CallError | None = None  # the error of the items of the present frame
        self._is_read = False  # no items will come
        self._is_closed = False
        self._is_refused = False
        self._next_deadline = math.inf
        self._cancel_timer: Callable[[], None] = _do_nothing

    @property
    def owner(self) -> str:
        """The principal, or the connection without authentication."""
        return self._principal.name if self._principal else self._peer

    @property
    def unanswered(self) -> int:
        """The number of unanswered calls."""
        return len(self._items)

    def read(self, requests: Iterator[bytes]) -> None:
        """Starts the calls of the stream as they come, until its end."""
        try:
            for data in requests:
                self._take(data)
        except CallError as error:
            self._answers.add_error(error)
        except grpc.RpcError:  # the client has gone
            self.close()
        except Exception as error:  # noqa: BLE001  # `frames` raises it
            self._answers.add_error(error)
        self._is_read = True
        self._answers.wake()

    def frames(self) -> Iterator[bytes]:
        """Yields frames of answers, until the client has sent all calls and all are answered, or has gone.

        Raises:
            CallError: the stream breaks the contract, or its token was removed.
        """
        yield b""  # the stream is accepted
        gate = self._services.gate
        with self._services.drain.notifying(self._answers.wake):
            was_draining = False
            while True:
                frame = call_stream_pb2.CallStreamResponse()
                began = time.thread_time()
                numbers = self._answers.gather(frame)
                if self._tokens_version != gate.version:
                    self._admit_token()
                # After the expiry of the token, too, the client opens another stream for later calls.
                is_draining = self._services.drain.begun or gate.has_expired(self._principal)
                if is_draining and not was_draining:
                    frame.draining = was_draining = True
                if frame.answers or frame.draining:
                    sent = frame.SerializeToString()
                    self._share.spend(time.thread_time() - began)
                    self._forget(numbers)  # the client may send as many calls as soon as it has the frame
                    yield sent
                elif not self._context.is_active():
                    # `read` does not see it behind a half-close, which gRPC also reports for some broken connections.
                    return
                if not self._items and (self._is_read or is_draining) and self._answers.is_empty:
                    return

    def close(self) -> None:
        """Cancels the calls that are not answered."""
        with self._lock:
            self._is_closed = True  # the other thread may be starting calls
            self._cancel_timer()
        for item in list(self._items.values()):
            item.cancel()
        self._memory.close()

    def check_token(self) -> None:
        """Ends the stream if its token was removed; without details if the client does not read its answers.

        If it has expired, the stream ends after the answers of its calls.
        """
        try:
            self._admit_token()
            if self._services.gate.has_expired(self._principal):
                self._answers.wake()
        except CallError as error:
            if self._is_refused:
                end_rpc(self._context, error)
            self._is_refused = True
            self._answers.wake()  # `frames` raises the error

    def _admit_token(self) -> None:
        """Checks the token of the stream if the tokens have changed.

        Raises:
            CallError: it was removed.
        """
        version = self._services.gate.version
        if version != self._tokens_version:
            self._principal = self._services.gate.admit(PATH, self._metadata, is_open=True)
            self._tokens_version = version

    def _forget(self, numbers: Sequence[int | None]) -> None:
        """Ends calls whose answers are in the next frame; until then they count against the window."""
        sent_bytes = operand_bytes = 0
        with self._lock:
            for number in numbers:
                if number is None:
                    self._refused -= 1
                else:
                    item = self._items.pop(number)
                    operand_bytes += item.nbytes
                    sent_bytes += item.result_bytes
            self._nbytes -= operand_bytes
        if operand_bytes:
            self._memory.release(operand_bytes)
        if sent_bytes:
            self._results.release(sent_bytes)

    def _take(self, data: bytes) -> None:
        """Gives effect to the items of a frame; waits before and between them if the client has used its share."""
        with self._charged():
            frame = _parsed(data)
            self._admit_token()
            self._expired = self._services.gate.expiry_error(self._principal)
        # An item keeps all of its frame in memory.
        is_shared = len(frame.items) > 1 and len(data) > _SMALL_FRAME_BYTES
        for begin in range(0, len(frame.items), _ITEMS_AT_ONCE):
            session = self._services.session()
            with self._charged(), session.batch if session is not None else nullcontext():
                for item in frame.items[begin : begin + _ITEMS_AT_ONCE]:
                    self._item_number += 1
                    self._take_item(item, is_shared=is_shared)

    @contextmanager
    def _charged(self) -> Iterator[None]:
        """Waits for the share of the client, and counts the processor time of the body, but for calls that it runs."""
        self._share.wait()
        began_s = time.thread_time() - used_s() + ADVANCE_S
        try:
            yield
        finally:
            self._share.spend(time.thread_time() - used_s() - began_s)

    def _take_item(self, item: call_stream_pb2.CallStreamItem, *, is_shared: bool) -> None:
        match item.WhichOneof("item"):
            case "call":
                message = detached_copy(item.call) if is_shared else item.call
                self._start(message, sum([len(operand.inline) for operand in message.operands]), self._call)
            case "read":
                self._start(detached_copy(item.read) if is_shared else item.read, 0, self._read)
            case "put":
                put = detached_copy(item.put) if is_shared else item.put
                self._start(put, len(put.inline), self._put)
            case "prepare":
                self._prepare(item.prepare)
            case "cancel":
                self._cancel(item.cancel.numbers)
            case "delete":
                if self._may_delete():
                    deletion = item.delete
                    self._arrays.delete(
                        self._owner,
                        deletion.handles,
                        self._item_number,
                        with_named=deletion.with_named,
                        replaced_by=deletion.replaced_by,
                    )
            case _:
                self._refuse_item(item)

    def _cancel(self, numbers: Sequence[int]) -> None:
        if len(numbers) > _MAX_CANCELLED:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"an item cancels {len(numbers)} calls, and may cancel {_MAX_CANCELLED}; send others in another item",
                field="numbers",
            )
        for number in numbers:
            if (item := self._items.get(number)) is not None:
                item.cancel()

    def _refuse_item(self, item: call_stream_pb2.CallStreamItem) -> None:
        """Answers an item of a newer client; ends the stream if it has no number."""
        error, number = refused_item(item)
        if not number:
            raise error

        def refuse(_: StreamItem, __: call_stream_pb2.ReadArray) -> NoReturn:
            raise error

        self._start(call_stream_pb2.ReadArray(number=number), 0, refuse)

    def _may_delete(self) -> bool:
        """Returns False for a principal without the scope: its client deletes the results of calls that failed."""
        if self._expired is not None:
            return False
        return self._principal is None or Scope.ARRAYS in self._principal.scopes

    @property
    def _owner(self) -> str:
        return self._principal.name if self._principal else ""

    def _prepare(self, message: call_stream_pb2.PrepareCall) -> None:
        if message.slot >= self._limits.max_prepared_calls:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"slot {message.slot} is not below {self._limits.max_prepared_calls}, the number of slots; assign a "
                "slot again that is no longer needed",
                field="slot",
            )
        self._memory.release(self._prepared_bytes.pop(message.slot, 0))
        try:
            prepared: PreparedSlot | CallError = prepared_call(message)
            nbytes = PREPARED_FACTOR * message.ByteSize()
            self._memory.reserve(nbytes)
        except CallError as error:  # of the calls that name the slot
            prepared, nbytes = error.copy(), 0
        self._prepared[message.slot], self._prepared_bytes[message.slot] = prepared, nbytes

    def _start(
        self,
        message: M,
        nbytes: int,
        stage_of: Callable[[StreamItem, M], Stage[CallOutcome]],
    ) -> None:
        """Starts a call, a read or a put; a failure is its answer.

        Args:
            message: the item.
            nbytes: the bytes of its operands.
            stage_of: returns its coroutine.
        """
        item = StreamItem(self._peer, message.number, nbytes)
        call = None
        try:
            self._admit(item)
            trace = _trace_of(message) if message.traceparent else None
            limit_s = message.timeout_seconds
            if not 0 < limit_s <= self._limits.max_call_s:
                limit_s = self._limit_s(limit_s)
            call = item.call = ServerCall(item, limit_s, self._principal, message.request_id, trace)
            stage = stage_of(item, message)
        except CallError as error:
            if call is None:
                self._fail_early(item, error)
            else:
                self._finish(item, None, error)
            return
        item.task = Task(stage, item.ended, partial(self._finish, item), self._share)
        if call.deadline < self._next_deadline:
            self._watch(call.deadline)
        item.task.start()
        if self._is_closed:
            item.cancel()

    def _call(self, item: StreamItem, message: call_stream_pb2.StreamedCall) -> Stage[CallOutcome]:
        """Returns the coroutine of a call.

        Raises:
            CallError: the call does not fit its slot, a handle is invalid, or a field unknown.
        """
        refuse_unknown_fields(message)
        prepared = self._prepared.get(message.slot)
        if prepared is None:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"slot {message.slot} has no call; send a PrepareCall for it first",
                field="slot",
            )
        if isinstance(prepared, CallError):
            raise prepared.copy()
        if message.result_handles and not prepared.message.keep_results:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"the results of slot {message.slot} do not stay on the mesh; set keep_results in its "
                "PrepareCall, or send no result_handles",
                field="result_handles",
            )
        if len(message.operands) != len(prepared.types) or len(message.result_handles) > MAX_OPERANDS:
            refuse_counts(message, prepared)
        handles, claim = [operand.handle for operand in message.operands], None
        if message.result_handles or any(handles):
            claim = self._arrays.claim(item.call.principal_name, handles, message.result_handles)
        work = StreamedCall(self._services.runner, item.call, message, prepared, claim)
        return self._stage(item, work, claim)

    def _read(self, item: StreamItem, message: call_stream_pb2.ReadArray) -> Stage[CallOutcome]:
        """Returns the coroutine of a read.

        Raises:
            CallError: the handle is invalid, or a field unknown.
        """
        refuse_unknown_fields(message)
        check_handle(message.handle, "handle")
        claim = self._arrays.claim(item.call.principal_name, [message.handle], (), ["handle"])
        return self._stage(item, StreamedRead(self._services.reader, item.call, claim), claim)

    def _put(self, item: StreamItem, message: call_stream_pb2.PutStreamedArray) -> Stage[CallOutcome]:
        """Returns the coroutine of a put.

        Raises:
            CallError: the handle is invalid, or a field unknown.
        """
        refuse_unknown_fields(message)
        check_handle(message.handle, "handle")
        claim = self._arrays.claim(item.call.principal_name, (), [message.handle])
        return self._stage(item, StreamedPut(self._services.writer, item.call, message, claim), claim)

    def _stage(self, item: StreamItem, work: StreamedWork, claim: ArrayClaim | None) -> Stage[CallOutcome]:
        reserve = partial(self._reserve, item)
        return run_streamed(self._services, self._arrays, item.call, work, claim, self._item_number, reserve)

    def _admit(self, item: StreamItem) -> None:
        """Counts a call against the window.

        Raises:
            CallError: QUOTA_EXCEEDED, SERVER_BUSY; TOKEN_REQUIRED if the token has expired.
        """
        limits = self._limits
        with self._lock:
            if item.number in self._items:
                # An answer would be taken for that of the other call.
                raise _StreamError(
                    Reason.MALFORMED_REQUEST,
                    f"number {item.number} is that of a call that is not answered; use another for each call",
                    field="number",
                )
            if self._expired is not None:
                raise self._refusal(self._expired.copy())
            for what, taken, limit, name in (
                ("calls", len(self._items) + 1, limits.max_calls, "max_streamed_calls"),
                ("bytes of operands", self._nbytes + item.nbytes, limits.max_bytes, "max_streamed_bytes"),
            ):
                if taken > limit:
                    raise self._refusal(
                        CallError(
                            Reason.QUOTA_EXCEEDED,
                            f"{taken} {what} of this stream would be unanswered, and {limit} may be; wait for answers "
                            f"before sending more (limit {name})",
                            metadata={"limit": name, "allowed": str(limit)},
                        )
                    )
        if item.nbytes:
            try:
                self._memory.reserve(item.nbytes)
            except CallError as error:
                with self._lock:
                    raise self._refusal(error) from None
        with self._lock:
            self._items[item.number] = item
            self._nbytes += item.nbytes

    def _refusal(self, error: CallError) -> CallError:
        """Returns the error of a call that is not admitted; one that ends the stream if its client sends on and on."""
        check_held(self._lock)
        self._refused += 1
        if self._refused <= self._limits.max_calls:
            return error
        return _StreamError(error.reason, error.message, field=error.field, metadata=error.metadata)

    def _reserve(self, item: StreamItem, nbytes: int) -> Awaitable[None] | None:
        """Reserves bytes for results, beside those that the client has not read.

        Returns:
            The wait until so many may be computed; None if they may now.
        """
        if nbytes <= item.result_bytes:
            return None
        if not self._results.try_acquire(nbytes - item.result_bytes):
            return self._wait_reserved(item, nbytes)
        item.result_bytes = nbytes
        return None

    async def _wait_reserved(self, item: StreamItem, nbytes: int) -> None:
        await self._results.acquire(item.call, nbytes - item.result_bytes)
        item.result_bytes = nbytes

    def _limit_s(self, timeout_s: float) -> float:
        if not timeout_s >= 0:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"timeout_seconds is {timeout_s}; send a number of seconds, 0 for the maximum",
                field="timeout_seconds",
            )
        return min(timeout_s or math.inf, self._limits.max_call_s)

    def _finish(self, item: StreamItem, outcome: CallOutcome | None, error: Exception | None) -> None:
        """Records the end of a call and queues its answer."""
        if error is not None or outcome is None:
            status = failed_call(self._services.recorder, METHOD, error or RuntimeError("no answer"), item.call)
            self._answers.add_failure(item.number, status)
        else:
            try:
                self._services.recorder.finish(METHOD, item.call)
            finally:
                self._answers.add(item.number, outcome)

    def _fail_early(self, item: StreamItem, error: CallError) -> None:
        if isinstance(error, _StreamError):
            raise error
        status = failed_call(self._services.recorder, METHOD, error, None)
        self._answers.add_failure(item.number, status, is_counted=self._items.get(item.number) is item)

    def _watch(self, deadline: float) -> None:
        """Makes sure that the timer looks at the calls when the next deadline passes."""
        with self._lock:
            if deadline < self._next_deadline and not self._is_closed:
                self._cancel_timer()
                self._next_deadline = deadline
                self._cancel_timer = self._services.timer.schedule(deadline, self._expire)

    def _expire(self) -> None:
        """Ends the calls whose deadline has passed."""
        with self._lock:
            self._next_deadline = math.inf
        now = time.monotonic()
        for item in list(self._items.values()):
            task = item.task
            if task is None:
                continue
            if item.call.deadline <= now:
                task.interrupt()
            else:
                self._watch(item.call.deadline)


def _parsed(data: bytes) -> call_stream_pb2.CallStreamRequest:
    try:
        frame = call_stream_pb2.CallStreamRequest.FromString(data)
    except DecodeError:
        raise CallError(
            Reason.MALFORMED_REQUEST, "a frame is no message of this method; use stubs generated from its protos"
        ) from None
    if len(frame.items) > _MAX_ITEMS:
        raise CallError(Reason.MALFORMED_REQUEST, f"a frame has {len(frame.items)} items; send at most {_MAX_ITEMS}")
    return frame


def _trace_of(message: M) -> dict[str, str]:
    trace = {"traceparent": message.traceparent, "tracestate": message.tracestate}
    return {key: value for key, value in trace.items() if value and len(value) <= _MAX_TRACE_CHARACTERS}


class _StreamError(CallError):
    """An error that ends the stream."""


def _do_nothing() -> None:
    pass
