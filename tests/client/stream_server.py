"""A server of call streams, as call_stream.proto says; each test sets the answers."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from shardcall.v1 import array_pb2, call_stream_pb2, kernel_pb2, kernel_service_pb2, timing_pb2

TIMING = timing_pb2.Timing(receive_seconds=0.25, execute_seconds=0.5, total_seconds=1.0)
MESH = {"axes": [{"name": "x", "size": 1}], "device_ids": [0]}
HIT = kernel_pb2.CacheAnswer(outcome=kernel_pb2.CACHE_OUTCOME_HIT)
PLAN_SLOTS = 256


@dataclass
class Call:
    """A call that came, with what its slot held then."""

    stream: Any
    item: Any
    prepared: Any

    @property
    def kernel(self) -> str:
        return self.prepared.call.kernel

    def answer(self, *, transfers: Any = (), results: Any = None, plan: Any = None) -> None:
        """Answers with the operands."""
        if results is None:
            results = [
                {"type": array_type, "inline": {"data": operand.inline}}
                for array_type, operand in zip(self.prepared.operands, self.item.operands, strict=True)
                if operand.WhichOneof("source") == "inline"
            ]
        self._send(plan or self.plan(), results=results, cache=HIT, transfers=transfers)

    def _send(self, plan: Any, *, transfers: Any = (), **response: Any) -> None:
        packed = kernel_service_pb2.ExecuteResponse(timing=TIMING, **response).SerializeToString()
        answer = call_stream_pb2.StreamedAnswer(number=self.item.number, response=packed, transfers=transfers)
        if plan is not None:
            self.stream.add_plan(answer, plan)
        self.stream.send(answer)

    def plan(self) -> Any:
        operands = [{"type": array_type} for array_type in self.prepared.operands]
        return kernel_pb2.Plan(kernel=self.kernel, mesh=MESH, operands=operands, strategy="plain")

    def store(self) -> None:
        """Answers a put."""
        plan = kernel_pb2.Plan(mesh=MESH)
        shape = self.item.type.shape
        plan.results.add(type=self.item.type, padded_shape=shape, block_shape=shape).spec.entries.add()
        self._send(plan, results=[{"type": self.item.type, "resident": {"handle": self.item.handle}}])

    def keep(self) -> None:
        """Answers with one result that stays, under the client's handle if it has named one."""
        handles = list(self.item.result_handles) or [bytes(15) + b"s"]
        array_type = array_pb2.ArrayType(element_type=array_pb2.ELEMENT_TYPE_FLOAT64, shape=[4])
        plan = self.plan()
        plan.results.add(type=array_type, padded_shape=[4], block_shape=[4]).spec.entries.add()
        self.answer(results=[{"type": array_type, "resident": {"handle": handles[0]}}], plan=plan)

    def send(self, array_type: Any, data: bytes) -> None:
        """Answers a read."""
        self._send(None, results=[{"type": array_type, "inline": {"data": data}}])

    def fail(self, *status: Any, **details: Any) -> None:
        failed = rich_status(*status, **details)
        self.stream.send(call_stream_pb2.StreamedAnswer(number=self.item.number, status=failed, timing=TIMING))


def rich_status(code, reason, message="from the server", *, at="", retry_after_s=0.0, domain="shardcall", **metadata):
    """Returns a serialized status with the details that the server's have."""
    details: list[Any] = []
    if reason:
        details.append(error_details_pb2.ErrorInfo(domain=domain, reason=reason, metadata=metadata))
    if at:
        details.append(error_details_pb2.BadRequest(field_violations=[{"field": at, "description": message}]))
    if retry_after_s:
        details.append(error_details_pb2.RetryInfo(retry_delay=timedelta(seconds=retry_after_s)))
    packed = [any_pb2.Any() for _ in details]
    for box, detail in zip(packed, details, strict=True):
        box.Pack(detail)
    return status_pb2.Status(code=code.value[0], message=message, details=packed).SerializeToString()


class Stream:
    """One stream; ``items`` are the items that came."""

    def __init__(self, server: "StreamServer", context: grpc.ServicerContext) -> None:
        self.server = server
        self.context = context
        self.metadata = dict(context.invocation_metadata())
        self.items: list[Any] = []
        self.prepared: dict[int, Any] = {}
        self.cancelled: SimpleQueue[int] = SimpleQueue()
        self.deleted: SimpleQueue[bytes] = SimpleQueue()
        self.half_closed = threading.Event()
        self._plans: dict[int, bytes] = {}
        self._next_plan = 0
        self._lock = threading.Lock()
        self._outgoing: SimpleQueue[Any] = SimpleQueue()

    @property
    def kinds(self) -> list[str]:
        """The kind of each item."""
        return [item.WhichOneof("item") for item in self.items]

    def add_plan(self, answer: Any, plan: Any) -> None:
        packed = plan.SerializeToString()
        with self._lock:
            for slot, other in self._plans.items():
                if other == packed:
                    answer.plan_slot = slot
                    return
            answer.plan_slot = self._next_plan % PLAN_SLOTS
            self._next_plan += 1
            self._plans[answer.plan_slot] = packed
            answer.plan.CopyFrom(plan)

    def send(self, answer: Any) -> None:
        self.send_frame(call_stream_pb2.CallStreamResponse(answers=[answer]))

    def send_frame(self, frame: Any) -> None:
        self._outgoing.put(frame)

    def drain(self) -> None:
        self.send_frame(call_stream_pb2.CallStreamResponse(draining=True))

    def end(self, code=grpc.StatusCode.OK, reason="", message="from the server", **more) -> None:
        """Ends the stream with a status."""
        self._outgoing.put((code, message, rich_status(code, reason, message, **more) if reason else b""))

    def read(self, requests: Iterator[Any]) -> None:
        with contextlib.suppress(grpc.RpcError, Exception):
            for frame in requests:
                for item in frame.items:
                    self._read(item)
            self.half_closed.set()
            self.end()

    def _read(self, item: Any) -> None:
        self.items.append(item)
        item_field = item.WhichOneof("item")
        if item_field == "prepare":
            self.prepared[item.prepare.slot] = item.prepare
        elif item_field == "cancel":
            for number in item.cancel.numbers:
                self.cancelled.put(number)
        elif item_field == "delete":
            for handle in item.delete.handles:
                self.deleted.put(handle)
        elif item_field == "read":
            self.server.on_read(Call(self, item.read, None))
        elif item_field == "put":
            self.server.puts.append(item.put)
            self.server.on_put(Call(self, item.put, None))
        else:
            call = Call(self, item.call, self.prepared[item.call.slot])
            self.server.calls.append(call)
            self.server.on_call(call)

    def answers(self) -> Iterator[Any]:
        while True:
            frame = self._outgoing.get()
            if not isinstance(frame, tuple):
                yield frame
                continue
            code, message, details = frame
            if code is grpc.StatusCode.OK:
                return
            if details:
                self.context.set_trailing_metadata((("grpc-status-details-bin", details),))
            self.context.abort(code, message)


@dataclass
class StreamServer:
    """The streams that came, and the answers to their calls.

    ``on_opened`` is called with each stream, ``on_call`` with each call; the usual one answers with the operands. The
    usual ``on_read`` has no array: a client then learns of the call that should have made it.
    """

    on_call: Callable[[Call], None] = Call.answer
    on_read: Callable[[Call], None] = lambda read: read.fail(grpc.StatusCode.NOT_FOUND, "ARRAY_LOST")
    on_put: Callable[[Call], None] = Call.store
    on_opened: Callable[[Stream], None] = lambda stream: None
    calls: list[Call] = field(default_factory=list)
    puts: list[Any] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)

    def serve(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        stream = Stream(self, context)
        context.add_callback(stream.end)
        self.streams.append(stream)
        self.on_opened(stream)
        stream.send_frame(call_stream_pb2.CallStreamResponse())  # after an end, if `on_opened` refuses the stream
        threading.Thread(target=stream.read, args=(requests,), daemon=True).start()
        yield from stream.answers()


def one_by_one(*answers: Callable[[Call], object]) -> Callable[[Call], None]:
    """Returns what gives each call the next answer."""
    left = list(answers)

    def answer(call: Call) -> None:
        left.pop(0)(call)

    return answer


def in_threads(count, work):
    """Returns the results of a function of an index, called in so many threads at once, or the errors."""
    pool = ThreadPoolExecutor(count)
    futures = [pool.submit(work, i) for i in range(count)]
    pool.shutdown(wait=False)
    return [future.exception(60) or future.result() for future in futures]


def threads_named(beginning):
    """Returns the threads whose names begin so."""
    return {thread for thread in threading.enumerate() if thread.name.startswith(beginning)}


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
