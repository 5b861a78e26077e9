"""The part of a server that shares memory and keeps arrays, as segment_service.proto and array_service.proto say."""

import contextlib
import fcntl
import os
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np

from shardcall.v1 import (
    array_service_pb2,
    array_service_pb2_grpc,
    kernel_pb2,
    kernel_service_pb2,
    segment_service_pb2,
    segment_service_pb2_grpc,
    timing_pb2,
)
from shardcall_core.types import arrays
from shardcall_core.wire.shared_memory import map_file

MIB = 2**20
STEP = 2 * MIB
TIMING = timing_pb2.Timing(total_seconds=1.0)
MESH = {"axes": [{"name": "x", "size": 4}], "device_ids": [0, 1, 2, 3]}
ROWS = {"entries": [{"axis_names": ["x"]}]}


@dataclass
class Stored:
    """An array that stays."""

    description: Any
    data: bytes
    lease_id: bytes

    @property
    def array(self):
        array_type = arrays.from_proto(self.description.placement.type)
        return np.frombuffer(self.data, array_type.dtype).reshape(array_type.shape)


@dataclass
class MemoryServer(segment_service_pb2_grpc.SegmentServiceServicer, array_service_pb2_grpc.ArrayServiceServicer):
    """Segments by real sockets and memory files, arrays in a dict, and a kernel that returns its operands.

    ``calls`` are the requests that came, ``asked`` counts those for segments, ``ended`` are the ids of segments whose
    lease ended. ``refuse`` and ``refuse_opening`` are the status and reason with which calls and segments are refused.
    """

    folder: Path
    calls: list[Any] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    ended: SimpleQueue = field(default_factory=SimpleQueue)
    segments: dict[bytes, np.ndarray] = field(default_factory=dict)
    stored: dict[bytes, Stored] = field(default_factory=dict)
    renewed: SimpleQueue = field(default_factory=SimpleQueue)
    deleted: SimpleQueue = field(default_factory=SimpleQueue)
    tickets: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)
    server: Any = None
    info: Any = None
    abort: Any = None
    before: Any = lambda request, context: None
    refuse: tuple = ()
    refuse_opening: tuple = ()
    asked: int = 0

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.path = self.folder / "s"
        self.listener.bind(str(self.path))
        self.listener.listen()
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()
        return self

    def __exit__(self, *error):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive(), "a lease has not ended"
        for _, fd in self.tickets.values():
            os.close(fd)

    def begin(self, server, info, abort):
        self.server, self.info, self.abort = server, info, abort
        info.limits.max_segment_bytes = 256 * MIB
        info.limits.min_segment_bytes = MIB
        info.limits.lease_seconds = 60
        server.info = lambda request, context: info
        server.execute, server.execute_stream = self.execute, self.execute_stream

    def add_to(self, grpc_server):
        segment_service_pb2_grpc.add_SegmentServiceServicer_to_server(self, grpc_server)
        array_service_pb2_grpc.add_ArrayServiceServicer_to_server(self, grpc_server)

    # The segment broker's socket.

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.threads.append(threading.Thread(target=self.serve, args=(connection,)))
            self.threads[-1].start()

    def serve(self, connection):
        with connection:
            ticket = connection.recv(32, socket.MSG_WAITALL)
            if ticket not in self.tickets:
                return
            segment_id, fd = self.tickets.pop(ticket)
            socket.send_fds(connection, [b"\x01"], [fd])
            os.close(fd)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
            self.segments.pop(segment_id, None)
            self.ended.put(segment_id)

    def OpenSegment(self, request, context):
        self.asked += 1
        if self.refuse_opening:
            self.abort(context, *self.refuse_opening)
        size = -(-request.size_bytes // STEP) * STEP
        fd = os.memfd_create("segment", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        ticket, segment_id = secrets.token_bytes(32), secrets.token_bytes(16)
        self.segments[segment_id] = map_file(fd, size, populate=False)
        self.tickets[ticket] = (segment_id, fd)
        self.opened.append(size)
        segment = {"segment_id": segment_id, "size_bytes": size, "socket_path": str(self.path)}
        return segment_service_pb2.OpenSegmentResponse(**segment, ticket=ticket, ticket_seconds=5)

    # The kernel.

    def note(self, request, context):
        self.calls.append(request)
        self.before(request, context)
        if self.refuse:
            self.abort(context, *self.refuse)

    def execute(self, request, context):
        self.note(request, context)
        return self.answer(request, {}, context, streamed=None)

    def execute_stream(self, requests, context):
        header = next(requests).header
        self.note(header, context)
        chunks: dict[int, bytearray] = {}
        for request in requests:
            chunks.setdefault(request.chunk.index, bytearray()).extend(request.chunk.data)
        streamed: list[bytes] = []
        answer = kernel_service_pb2.ExecuteStreamResponse
        yield answer(header=self.answer(header, chunks, context, streamed=streamed))
        for index, data in streamed:
            for offset in range(0, len(data), MIB):
                yield answer(chunk={"index": index, "offset": offset, "data": data[offset : offset + MIB]})
        yield answer(timing=TIMING)

    def answer(self, request, chunks, context, *, streamed):
        operands = [(i, operand) for i, operand in enumerate(request.operands) if operand.type.element_type]
        present = [(operand.type, self.value(operand, chunks.get(i), context)) for i, operand in operands]
        types = [arrays.from_proto(array_type) for array_type, _ in present]
        space, needed = request.result_space, sum(-(-array_type.nbytes // 64) * 64 for array_type in types)
        fits = space.segment_id and needed <= space.size_bytes
        results, offset = [], space.offset
        for index, ((array_type, data), described) in enumerate(zip(present, types, strict=True)):
            result = kernel_service_pb2.Result(type=array_type)
            if request.keep_results:
                result.resident.handle = self.store(array_type, data, request.lease_id).description.handle
            elif fits:
                self.write(result, data, space, offset, context)
                offset += -(-described.nbytes // 64) * 64
            elif streamed is not None:
                result.streamed.SetInParent()
                streamed.append((index, data))
            elif len(data) > MIB:
                self.abort(context, grpc.StatusCode.FAILED_PRECONDITION, "STREAM_REQUIRED")
            else:
                result.inline.data = data
            results.append(result)
        plan = kernel_pb2.Plan(kernel="echo", mesh=MESH, results=[placement(array_type) for array_type, _ in present])
        return kernel_service_pb2.ExecuteResponse(results=results, plan=plan, timing=TIMING)

    def write(self, result, data, space, offset, context):
        """Puts a result into the segment of its buffer."""
        self.memory(space.segment_id, context)[offset : offset + len(data)] = np.frombuffer(data, np.uint8)
        result.segment.segment_id, result.segment.offset = space.segment_id, offset

    def value(self, operand, chunks, context):
        source = operand.WhichOneof("source")
        if source == "inline":
            return operand.inline.data
        if source == "resident":
            return self.find(operand.resident.handle, context).data
        if source == "segment":
            size = arrays.from_proto(operand.type).nbytes
            memory = self.memory(operand.segment.segment_id, context)
            assert operand.segment.offset % 64 == 0
            return memory[operand.segment.offset : operand.segment.offset + size].tobytes()
        return bytes(chunks or b"")

    # Arrays that stay.

    def store(self, array_type, data, lease_id, mesh=None, spec=None):
        size = arrays.from_proto(array_type).nbytes
        where = {"mesh": mesh or MESH, "placement": placement(array_type, spec), "device_bytes": size}
        description = array_service_pb2.ArrayDescription(handle=secrets.token_bytes(16), **where)
        self.stored[description.handle] = Stored(description, bytes(data), lease_id)
        return self.stored[description.handle]

    def hold_answers(self):
        """Keeps back the answers to what is stored from now on; gives two events: one is stored, and go on."""
        stored, release, store = threading.Event(), threading.Event(), self.store

        def store_and_wait(*args):
            array = store(*args)
            stored.set()
            assert release.wait(20)
            return array

        self.store = store_and_wait
        return stored, release

    def find(self, handle, context):
        if handle not in self.stored:
            self.abort(context, grpc.StatusCode.NOT_FOUND, "ARRAY_LOST", handle=f"{handle.hex()[:8]}…")
        return self.stored[handle]

    def memory(self, segment_id, context):
        if segment_id not in self.segments:
            self.abort(context, grpc.StatusCode.NOT_FOUND, "SEGMENT_NOT_FOUND")
        return self.segments[segment_id]

    def PutArray(self, request_iterator: Iterator[Any], context):
        header = next(request_iterator).header
        self.note(header, context)
        data = b"".join(request.chunk.data for request in request_iterator)
        value = self.value(header.array, data, context)
        spec = header.spec.spec if header.spec.HasField("spec") else None
        mesh = header.mesh if header.HasField("mesh") else None
        stored = self.store(header.array.type, value, header.lease_id, mesh, spec)
        return array_service_pb2.PutArrayResponse(array=stored.description, timing=TIMING)

    def GetArray(self, request, context):
        self.calls.append(request)
        stored = self.find(request.handle, context)
        result = kernel_service_pb2.Result(type=stored.description.placement.type)
        space, data = request.result_space, stored.data
        in_segment = space.segment_id and len(data) <= space.size_bytes
        if in_segment:
            self.write(result, data, space, space.offset, context)
        else:
            result.streamed.SetInParent()
        answer = array_service_pb2.GetArrayResponse
        yield answer(header=array_service_pb2.GetArrayHeader(array=result))
        for offset in range(0, 0 if in_segment else len(data), MIB):
            yield answer(chunk={"offset": offset, "data": data[offset : offset + MIB]})
        yield answer(timing=TIMING)

    def DescribeArray(self, request, context):
        return array_service_pb2.DescribeArrayResponse(array=self.find(request.handle, context).description)

    def ListArrays(self, request, context):
        ours = [item.description for item in self.stored.values() if item.lease_id == request.lease_id]
        return array_service_pb2.ListArraysResponse(arrays=ours)

    def DeleteArrays(self, request, context):
        self.before(request, context)
        there = [handle for handle in request.handles if self.stored.pop(handle, None)]
        self.deleted.put(list(request.handles))
        return array_service_pb2.DeleteArraysResponse(deleted_count=len(there))

    def RenewLease(self, request, context):
        self.renewed.put(request.lease_id)
        return array_service_pb2.RenewLeaseResponse(holds_arrays=True)


def placement(array_type, spec=None):
    shape = array_type.shape
    blocks = [-(-n // 4) for n in shape]
    return kernel_pb2.ArrayPlacement(type=array_type, spec=spec or ROWS, padded_shape=shape, block_shape=blocks)
