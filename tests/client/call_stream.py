"""A call stream whose calls run when a test says so, on the arrays of a `client.memory_server.MemoryServer`."""

import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from client.memory_server import MESH, TIMING, placement

import shardcall
from shardcall._src.transfer.download import Answer, ResidentResult
from shardcall.v1 import kernel_pb2
from shardcall_core.types import arrays
from shardcall_core.types.errors import with_message

LOST = shardcall.ArrayLostError("it is not there", reason="ARRAY_LOST")


@dataclass(eq=False)
class SentCall:
    """A call that was sent."""

    message: Any
    operands: list[Any]
    handles: list[bytes]
    lease_id: bytes
    request_id: str
    deadline: Any
    number: int = 1
    cancelled: bool = False
    outcome: Any = None
    done: bool = False
    callbacks: list[Any] = field(default_factory=list)

    def result(self, deadline):
        assert self.done
        if isinstance(self.outcome, shardcall.ShardcallError):
            raise with_message(self.outcome, self.outcome.message)
        return self.outcome

    def add_done_callback(self, callback):
        if self.done:
            callback(self)
        else:
            self.callbacks.append(callback)

    def cancel(self):
        self.cancelled = True
        self.finish(shardcall.CallCancelledError("cancelled"))

    def finish(self, outcome):
        if not self.done:
            self.outcome, self.done = outcome, True
            while self.callbacks:
                self.callbacks.pop()(self)


class SentRead(Future):
    """A read or a put that was sent."""

    def result(self, deadline):
        try:
            return super().result(deadline.remaining_s())
        except TimeoutError:
            raise shardcall.DeadlineExceededError("the array was not read in time") from None

    def cancel(self):
        self.set_exception(shardcall.CallCancelledError("cancelled"))


class FakeCallStream:
    """Runs calls of NumPy's functions, in the order of sending; ``failures`` are the errors of kernels.

    ``items`` are the calls and deletions that were sent and did not take effect yet, with what they do; with
    ``automatic`` they do so at once.
    """

    is_refused = False

    def __init__(self, memory):
        self.memory = memory
        self.automatic = False
        self.items = []
        self.sent = []
        self.failures = {}
        self.failed = {}
        self.lock = threading.RLock()

    def wait_accepted(self, deadline):
        return not self.is_refused

    def send(self, call, operands, deadline, *, lease_id=b"", result_handles=(), request_id="", sending=None, **_):
        values = [o.handle if hasattr(o, "handle") else o for o in operands]
        sent = SentCall(call, values, list(result_handles), lease_id, request_id, deadline)
        if sending is not None:
            sending(sent)
        self.add(sent, partial(self.call, sent))
        return sent

    def read(self, handle, deadline, *, request_id=""):
        sent = SentRead()
        with self.lock:
            if handle in self.memory.stored:
                self.read_now(sent, handle)
            else:
                self.items.append((sent, partial(self.read_now, sent, handle)))
        return sent

    def put(self, array, header, handle, deadline):
        sent = SentRead()
        self.store(array, handle, header.lease_id)
        plan = kernel_pb2.Plan(mesh=MESH, results=[placement(arrays.to_proto(array))])
        result = ResidentResult(arrays.type_of(array), handle)
        sent.set_result(Answer((result,), plan.SerializeToString(), kernel_pb2.CacheAnswer(), TIMING))
        return sent

    def store(self, array, handle, lease_id):
        stored = self.memory.store(arrays.to_proto(array), arrays.row_major(array).tobytes(), lease_id)
        del self.memory.stored[stored.description.handle]
        stored.description.handle = handle
        self.memory.stored[handle] = stored

    def answer(self, send, deadline, *, rerun=False):
        return send().result(deadline)

    def delete(self, handles, *, with_named=False, replaced_by=b""):
        def deed():
            if not replaced_by or replaced_by in self.memory.stored:
                for handle in handles:
                    self.memory.stored.pop(handle, None)

        self.add(list(handles), deed)

    def close(self):
        for sent, _ in self.items:
            if not isinstance(sent, list):
                sent.cancel()

    def add(self, sent, deed):
        with self.lock:
            self.items.append((sent, deed))
            self.sent.append(sent)
            if self.automatic:
                self.run()

    def run(self):
        with self.lock:
            for _, deed in self.items:
                deed()
            self.items.clear()

    def read_now(self, read, handle):
        if (stored := self.memory.stored.get(handle)) is None:
            read.set_exception(LOST)
        else:
            read.set_result(Answer((stored.array,), b"", kernel_pb2.CacheAnswer(), TIMING))

    def call(self, call):
        error = self.failures.get(call.message.kernel)
        values = []
        for operand in call.operands:
            if isinstance(operand, bytes) and operand in self.memory.stored:
                values.append(self.memory.stored[operand].array)
            elif isinstance(operand, bytes):
                error = self.failed.get(operand, LOST)
            else:
                values.append(operand)
        if error is not None:
            self.failed.update(dict.fromkeys(call.handles, error))
            call.finish(error)
            return
        computed = values[0] if call.message.kernel == "echo" else getattr(np, call.message.kernel)(*values)
        results = computed if isinstance(computed, tuple | list) else [computed]
        kept = []
        for handle, array in zip(call.handles or [os.urandom(16) for _ in results], results, strict=True):
            self.store(array, handle, call.lease_id)
            kept.append(ResidentResult(arrays.type_of(array), handle))
        placements = [placement(arrays.to_proto(array)) for array in results]
        plan = kernel_pb2.Plan(kernel=call.message.kernel, mesh=MESH, results=placements)
        call.finish(Answer(tuple(kept), plan.SerializeToString(), kernel_pb2.CacheAnswer(), TIMING))
