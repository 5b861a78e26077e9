"""Shared memory without the client: as the contract says, and against its rules."""

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from end_to_end.messages import call, mesh, spec, tensor

from shardcall.v1 import kernel_service_pb2, segment_service_pb2, segment_service_pb2_grpc
from shardcall_core.wire.shared_memory import map_file

MIB = 1 << 20
SHAPE = (256, 1024)
NBYTES = 2 * MIB
_PUNCH_HOLE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


@dataclass
class Held:
    """A segment in the hands of a client that keeps to no rule.

    Attributes:
        segment_id: what calls name it by.
        fd: its file.
        memory: its bytes.
        lease: the connection that keeps it.
    """

    segment_id: bytes
    fd: int
    memory: np.ndarray
    lease: socket.socket

    def put(self, offset: int, array: np.ndarray) -> None:
        self.memory[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)

    def punch(self, offset: int, nbytes: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
        assert libc.fallocate(self.fd, _PUNCH_HOLE, offset, nbytes) == 0, os.strerror(ctypes.get_errno())

    def execute(
        self, offset: int = 0, result_offset: int | None = None, **changed
    ) -> kernel_service_pb2.ExecuteRequest:
        """A diff by rows of the array at an offset; the result is written at ``result_offset`` if there is one."""
        operand = kernel_service_pb2.Operand(
            type=changed.get("type", tensor(*SHAPE)),
            segment=kernel_service_pb2.SegmentRegion(
                segment_id=changed.get("segment_id", self.segment_id), offset=offset
            ),
        )
        space = None
        if result_offset is not None:
            size = changed.get("result_bytes", NBYTES)
            space = kernel_service_pb2.SegmentSpace(segment_id=self.segment_id, offset=result_offset, size_bytes=size)
        asked = call(parameters={"axis": 0}, mesh=mesh(x=2), in_specs=[spec("x", None)])
        return kernel_service_pb2.ExecuteRequest(call=asked, operands=[operand], result_space=space)

    def result(self, answer: kernel_service_pb2.ExecuteResponse) -> np.ndarray:
        (result,) = answer.results
        count = int(np.prod(result.type.shape))
        return np.frombuffer(self.memory, np.float64, count, result.segment.offset).reshape(result.type.shape)


def bring(answer: segment_service_pb2.OpenSegmentResponse, ticket: bytes) -> tuple[socket.socket, bytes, list[int]]:
    """Shows a ticket; what comes for it."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect(answer.socket_path)
    connection.sendall(ticket)
    data, fds, _, _ = socket.recv_fds(connection, 16, 4)
    return connection, data, list(fds)


@contextmanager
def held_segment(stub: segment_service_pb2_grpc.SegmentServiceStub, nbytes: int) -> Iterator[Held]:
    """A segment of a size, released after the body."""
    answer = stub.OpenSegment(segment_service_pb2.OpenSegmentRequest(size_bytes=nbytes), timeout=30)
    lease, data, fds = bring(answer, answer.ticket)
    with lease:
        assert (data, len(fds)) == (b"\x01", 1)
        try:
            yield Held(answer.segment_id, fds[0], map_file(fds[0], answer.size_bytes, populate=True), lease)
        finally:
            os.close(fds[0])
