"""One call stream: its items, its window and its answers."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple

import grpc
from google.protobuf.message import DecodeError

from shardcall.v1 import call_stream_pb2, kernel_pb2, kernel_service_pb2, timing_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.access.principals import Principal
from shardcall_server.frontend.dispatch.idempotency import IdempotencyTable
from shardcall_server.frontend.dispatch.kernel_runner import KernelRequest, KernelRunner
from shardcall_server.frontend.dispatch.operand_reader import check_inline
from shardcall_server.frontend.memory.call_buffers import OperandSource
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, ResidentArrayTable
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.rpc.admission import Admission
from shardcall_server.frontend.rpc.coroutines import Task
from shardcall_server.frontend.rpc.deadline_timer import DeadlineTimer
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.call_outcomes import failed_call
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim, StreamedArrays
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.link.wire import check_counts, decode_operand_types

METHOD = "CallStream"
PATH = f"/shardcall.v1.KernelService/{METHOD}"

MAX_PREPARED_CALLS = 256

_POLL_S = 0.5
_FRAME_BYTES = 1 << 20
_PLAN_SLOTS = 256
_MAX_ITEMS = 4096  # of one frame
_NO_TRANSFERS = kernel_pb2.Plan()


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


@dataclass(frozen=True)
class StreamServices:
    """The parts of the server that call streams use; those of unary calls."""

    gate: Gate
    admission: Admission
    drain: Drain
    recorder: CallRecorder
    runner: KernelRunner
    idempotency: IdempotencyTable
    array_table: ResidentArrayTable
    timer: DeadlineTimer


@dataclass(frozen=True)
class _PreparedCall:
    """The assignment of a slot."""

    message: call_stream_pb2.PrepareCall
    types: Sequence[ArrayType | None]


class _Ran(NamedTuple):
    """The outcome of a call: the response without its plan, the plan of its program, and a plan of its transfers."""

    response: kernel_service_pb2.ExecuteResponse
    plan: kernel_pb2.Plan
    transfers: kernel_pb2.Plan


class _Item:
    """A call of the stream, as the caller's end of its `ServerCall`.

    Attributes:
        number: its number.
        nbytes: the bytes of its operands.
        is_cancelled: whether the client has cancelled it, or the stream has ended.
        call: its state.
        task: its coroutine.
    """

    __slots__ = ("_peer", "call", "is_cancelled", "nbytes", "number", "task")

    call: ServerCall
    task: Task

    def __init__(self, peer: str, number: int, nbytes: int) -> None:
        self._peer = peer
        self.number = number
        self.nbytes = nbytes
        self.is_cancelled = False

    def peer(self) -> str:
        return self._peer

    def is_active(self) -> bool:
        return not self.is_cancelled

    def add_callback(self, callback: Callable[[], None]) -> bool:
        raise NotImplementedError("the items of call streams have no thread that could wait")

    def cancel(self) -> None:
        """Cancels the call."""
        self.is_cancelled = True
        self.task.interrupt()

    def ended(self, doing: str) -> CallError | None:
        """Returns the error of a call that was cancelled or whose deadline has passed; None while it may continue."""
        try:
            self.call.check(doing)
        except CallError as error:
            return error
        return None


class CallStream:
    """One call stream. A thread reads its items and starts their calls; another sends the answers.

    Args:
        services: the parts of the server.
        limits: the limits of the stream.
        context: gRPC's context of the stream.
        principal: the caller; None without authentication.
    """

    def __init__(
        self,
        services: StreamServices,
        limits: StreamLimits,
        context: grpc.ServicerContext,
        principal: Principal | None,
    ) -> None:
        self._services = services
        self._limits = limits
        self._metadata = context.invocation_metadata()
        self._peer: str = context.peer()
        self._principal = principal
        self._prepared: dict[int, _PreparedCall] = {}
        self._arrays = StreamedArrays(services.array_table)
        self._items: dict[int, _Item] = {}
        self._nbytes = 0
        self._lock = threading.Lock()
        self._answers: SimpleQueue[Callable[[], call_stream_pb2.StreamedAnswer] | Exception | None] = SimpleQueue()
        self._plans: OrderedDict[int, tuple[int, kernel_pb2.Plan]] = OrderedDict()
        self._refused = 0
        self._is_read = False  # no items will come
        self._next_deadline = math.inf
        self._cancel_timer: Callable[[], None] = _do_nothing

    def read(self, requests: Iterator[bytes]) -> None:
        """Starts the calls of the stream as they come, until its end."""
        try:
            for data in requests:
                self._take(data)
        except CallError as error:
            self._answers.put(error)
        except grpc.RpcError:
            pass  # the client has gone, and gRPC ends the stream
        except Exception as error:  # noqa: BLE001  # `frames` raises it
            self._answers.put(error)
        self._is_read = True
        self._answers.put(None)

    def frames(self) -> Iterator[bytes]:
        """Yields frames of answers, until the client has sent all calls and all are answered.

        Raises:
            CallError: the stream breaks the contract, or its token was removed.
        """
        with self._services.drain.notifying(lambda: self._answers.put(None)):
            was_draining = False
            while True:
                frame = call_stream_pb2.CallStreamResponse()
                numbers = self._gather(frame)
                self._principal = self._services.gate.admit(PATH, self._metadata)
                is_draining = self._services.drain.refusal is not None
                if is_draining and not was_draining:
                    frame.draining = was_draining = True
                if frame.answers or frame.draining:
                    yield frame.SerializeToString()
                    self._forget(numbers)
                if not self._items and (self._is_read or is_draining) and self._answers.empty():
                    return

    def close(self) -> None:
        """Cancels the calls that are not answered."""
        self._cancel_timer()
        for item in list(self._items.values()):
            item.cancel()

    def _gather(self, frame: call_stream_pb2.CallStreamResponse) -> list[int]:
        """Adds the answers that are there to a frame, and waits for the first for a while; returns their numbers."""
        numbers, nbytes = [], 0
        try:
            answer = self._answers.get(timeout=_POLL_S)
            while True:
                if isinstance(answer, Exception):
                    raise answer
                if answer is not None:
                    message = answer()
                    frame.answers.append(message)
                    numbers.append(message.number)
                    nbytes += len(message.response)
                    if nbytes > _FRAME_BYTES:
                        break
                answer = self._answers.get_nowait()
        except Empty:
            pass
        return numbers

    def _forget(self, numbers: Sequence[int]) -> None:
        """Ends calls whose answers gRPC has accepted; until then they count against the window."""
        with self._lock:
            for number in numbers:
                item = self._items.pop(number, None)
                if item is None:
                    self._refused -= 1
                else:
                    self._nbytes -= item.nbytes

    def _take(self, data: bytes) -> None:
        """Gives effect to the items of a frame."""
        try:
            frame = call_stream_pb2.CallStreamRequest.FromString(data)
        except DecodeError:
            raise CallError(
                Reason.MALFORMED_REQUEST, "a frame is no message of this method; use stubs generated from its protos"
            ) from None
        if len(frame.items) > _MAX_ITEMS:
            raise CallError(
                Reason.MALFORMED_REQUEST, f"a frame has {len(frame.items)} items; send at most {_MAX_ITEMS}"
            )
        self._principal = self._services.gate.admit(PATH, self._metadata)
        for item in frame.items:
            match item.WhichOneof("item"):
                case "call":
                    self._start(item.call)
                case "prepare":
                    self._prepare(item.prepare)
                case "cancel":
                    for number in item.cancel.numbers:
                        if (found := self._items.get(number)) is not None:
                            found.cancel()
                case "delete":
                    self._arrays.delete(self._owner, item.delete.handles)

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
        check_counts(message.call, len(message.operands))
        self._prepared[message.slot] = _PreparedCall(message, decode_operand_types(message.operands))

    def _start(self, message: call_stream_pb2.StreamedCall) -> None:
        """Starts a call; a failure is its answer."""
        item = _Item(self._peer, message.number, sum(len(operand.inline) for operand in message.operands))
        call = claim = None
        try:
            self._admit(item)
            trace = {key: value for key in ("traceparent", "tracestate") if (value := getattr(message, key))}
            limit_s = self._limit_s(message.timeout_seconds)
            call = item.call = ServerCall(item, limit_s, self._principal, message.request_id, trace)
            prepared = self._prepared.get(message.slot)
            if prepared is None:
                raise CallError(
                    Reason.MALFORMED_REQUEST,
                    f"slot {message.slot} has no call; send a PrepareCall for it first",
                    field="slot",
                )
            handles = [operand.handle for operand in message.operands]
            claim = self._arrays.claim(call.principal_name, handles, message.result_handles)
        except CallError as error:
            if call is None:
                self._fail_early(item.number, error)
            else:
                self._finish(item, None, error)
            return
        claimed = claim
        item.task = Task(
            self._run(call, message, prepared, claimed),
            item.ended,
            lambda ran, error: self._finish(item, ran, error),
        )
        self._watch(call.deadline)
        item.task.start()

    def _admit(self, item: _Item) -> None:
        """Counts a call against the window.

        Raises:
            CallError: QUOTA_EXCEEDED.
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
            for what, taken, limit, name in (
                ("calls", len(self._items) + 1, limits.max_calls, "max_streamed_calls"),
                ("bytes of operands", self._nbytes + item.nbytes, limits.max_bytes, "max_streamed_bytes"),
            ):
                if taken > limit:
                    self._refused += 1
                    error = _StreamError if self._refused > limits.max_calls else CallError
                    raise error(
                        Reason.QUOTA_EXCEEDED,
                        f"{taken} {what} of this stream would be unanswered, and {limit} may be; wait for answers "
                        f"before sending more (limit {name})",
                        metadata={"limit": name, "allowed": str(limit)},
                    )
            self._items[item.number] = item
            self._nbytes += item.nbytes

    def _limit_s(self, timeout_s: float) -> float:
        if not timeout_s >= 0:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"timeout_seconds is {timeout_s}; send a number of seconds, 0 for the maximum",
                field="timeout_seconds",
            )
        return min(timeout_s or math.inf, self._limits.max_call_s)

    async def _run(
        self, call: ServerCall, message: call_stream_pb2.StreamedCall, prepared: _PreparedCall, claim: ArrayClaim
    ) -> _Ran:
        services = self._services
        services.recorder.begin(call)
        try:
            with services.drain.working(call.connection):
                residents = await claim.resolve(call)
                operands, inline = _operands(message, prepared, residents)
                settings = prepared.message
                request = KernelRequest(
                    settings.call,
                    operands,
                    keeps=settings.keep_results,
                    lease_id=settings.lease_id,
                    handles=claim.results,
                    refuse_transfers=settings.refuse_transfers,
                )

                async def execute() -> _Ran:
                    async with services.admission.working(call):
                        response, ready = await services.runner.run(call, request, inline, claim.launched)
                    return _Ran(response, ready.entry.plan, ready.transfers)

                if not request.keeps:
                    return await execute()
                return await services.idempotency.once(call, _as_unary(request, inline), execute)
        except CallError as error:
            claim.failed(error)
            raise
        except Exception:
            claim.failed(CallError(Reason.INTERNAL, "the call failed"))
            raise

    def _finish(self, item: _Item, ran: _Ran | None, error: Exception | None) -> None:
        """Records the end of a call and queues its answer."""
        if error is not None or ran is None:
            status = failed_call(self._services.recorder, METHOD, error or RuntimeError("no answer"), item.call)
            failure = call_stream_pb2.StreamedAnswer(
                number=item.number,
                status=status.serialized,
                timing=item.call.timing,
                retry_pushback_ms=status.retry_ms,
            )
            self._answers.put(lambda: failure)
        else:
            self._services.recorder.finish(METHOD, item.call)
            self._answers.put(lambda: self._answer(item.number, ran))

    def _fail_early(self, number: int, error: CallError) -> None:
        if isinstance(error, _StreamError):
            raise error
        status = failed_call(self._services.recorder, METHOD, error, None)
        failure = call_stream_pb2.StreamedAnswer(
            number=number, status=status.serialized, timing=timing_pb2.Timing(), retry_pushback_ms=status.retry_ms
        )
        self._answers.put(lambda: failure)

    def _answer(self, number: int, ran: _Ran) -> call_stream_pb2.StreamedAnswer:
        """Returns the answer of a call; the slots of plans are assigned in the order of sending."""
        answer = call_stream_pb2.StreamedAnswer(number=number, response=ran.response.SerializeToString())
        known = self._plans.get(id(ran.plan))
        if known is None:
            slot = len(self._plans)
            if slot == _PLAN_SLOTS:
                _, (slot, _) = self._plans.popitem(last=False)
            self._plans[id(ran.plan)] = slot, ran.plan
            answer.plan.CopyFrom(ran.plan)
        else:
            slot = known[0]
            self._plans.move_to_end(id(ran.plan))
        answer.plan_slot = slot
        if ran.transfers.transfers:
            answer.transfers.extend(ran.transfers.transfers)
        return answer

    def _watch(self, deadline: float) -> None:
        """Makes sure that the timer looks at the calls when the next deadline passes."""
        if deadline < self._next_deadline:
            self._cancel_timer()
            self._next_deadline = deadline
            self._cancel_timer = self._services.timer.schedule(deadline, self._expire)

    def _expire(self) -> None:
        """Ends the calls whose deadline has passed."""
        self._next_deadline = math.inf
        now = time.monotonic()
        for item in list(self._items.values()):
            task = getattr(item, "task", None)
            if task is None:
                continue
            if item.call.deadline <= now:
                task.interrupt()
            else:
                self._watch(item.call.deadline)


class _StreamError(CallError):
    """An error that ends the stream."""


def _do_nothing() -> None:
    pass


def _operands(
    message: call_stream_pb2.StreamedCall, prepared: _PreparedCall, residents: Sequence[ResidentArray | None]
) -> tuple[list[OperandSource], list[bytes | None]]:
    """Returns the sources of a call's operands and the bytes of those that are in the message.

    Raises:
        CallError: an operand does not have the type that its slot says.
    """
    if len(message.operands) != len(prepared.types):
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{len(message.operands)} operands came for slot {message.slot}, whose call has {len(prepared.types)}; "
            "send one for each type, an empty one for an omitted operand",
            field="operands",
        )
    sources: list[OperandSource] = []
    inline: list[bytes | None] = []
    for i, (operand, kind, resident) in enumerate(zip(message.operands, prepared.types, residents, strict=True)):
        source = operand.WhichOneof("source")
        data = None
        if source == "handle" and resident is not None:
            if kind is not None and kind != resident.type:
                raise CallError(
                    Reason.INVALID_OPERAND,
                    f"operand {i} is declared as {kind}, and the array on the mesh is {resident.type}; omit the type, "
                    "or correct it",
                    field=f"operand {i}",
                )
            sources.append(OperandSource(resident.type, resident=resident))
        elif (source == "inline") != (kind is not None):
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"operand {i} {'has a type and no bytes' if kind else 'has bytes and no type'}; send both, or neither "
                "for an omitted operand",
                field=f"operand {i}",
            )
        else:
            if kind is not None:
                data = operand.inline
                check_inline(kind, data, f"operand {i}")
            sources.append(OperandSource(kind))
        inline.append(data)
    return sources, inline


def _as_unary(request: KernelRequest, inline: Sequence[bytes | None]) -> kernel_service_pb2.ExecuteRequest:
    """Returns the request that Execute would get, by which repeated calls are compared."""
    message = kernel_service_pb2.ExecuteRequest(
        call=request.call,
        keep_results=request.keeps,
        lease_id=request.lease_id,
        refuse_transfers=request.refuse_transfers,
    )
    for operand, data in zip(request.operands, inline, strict=True):
        added = message.operands.add()
        if operand.resident is not None:
            added.resident.handle = operand.resident.handle
        elif data is not None:
            added.inline.data = data
    return message
