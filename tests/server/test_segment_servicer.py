"""OpenSegment over gRPC, with the segment broker's socket beside it."""

import itertools
import os
import queue
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from server.grpc_server import PATIENCE_S, channel_to

from shardcall.v1 import segment_service_pb2, segment_service_pb2_grpc
from shardcall_server.frontend.access.gate import Gate
from shardcall_server.frontend.memory.budget import MemoryBudget
from shardcall_server.frontend.memory.segment_broker import SegmentBroker, make_segment_broker
from shardcall_server.frontend.memory.segments import SegmentTable
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.services.segment_servicer import SegmentServicer

_MIB = 1 << 20


@dataclass
class Server:
    """A gRPC server of the one service.

    Attributes:
        stub: its RPC methods.
        segments: its registry.
        segment_broker: what hands them out; None where it shares none.
        gone: the memory ids of files that were closed.
    """

    stub: segment_service_pb2_grpc.SegmentServiceStub
    segments: SegmentTable
    segment_broker: SegmentBroker | None
    gone: queue.Queue[int]

    def open(self, size_bytes: int) -> segment_service_pb2.OpenSegmentResponse:
        return self.stub.OpenSegment(segment_service_pb2.OpenSegmentRequest(size_bytes=size_bytes))

    def refusal(self, size_bytes: int) -> grpc.StatusCode:
        with pytest.raises(grpc.RpcError) as refused:
            self.open(size_bytes)
        return refused.value.code()


@pytest.fixture
def start(short_folder: Path) -> Iterator[Callable[[bool], Server]]:
    with ExitStack() as stack:

        def started(share: bool) -> Server:
            gone: queue.Queue[int] = queue.Queue()
            budget = MemoryBudget(64 * _MIB, 64 * _MIB)
            segments = SegmentTable(budget, 32 * _MIB, itertools.count(1).__next__, gone.put)
            stack.callback(segments.close)
            segment_broker = make_segment_broker([str(short_folder)]) if share else None
            if segment_broker:
                stack.enter_context(closing(segment_broker))
            servicer = SegmentServicer(segments, segment_broker, Drain())
            add_servicer = segment_service_pb2_grpc.add_SegmentServiceServicer_to_server
            channel = stack.enter_context(channel_to(Gate(None), add_servicer, servicer))
            return Server(segment_service_pb2_grpc.SegmentServiceStub(channel), segments, segment_broker, gone)

        yield started


def test_open_segment_returns_all_that_is_needed_to_get_it(start: Callable[[bool], Server]):
    server = start(True)
    opened = server.open(1)
    assert (opened.size_bytes, opened.ticket_seconds) == (2 * _MIB, 5)
    assert opened.timing.total_seconds > 0
    with socket.socket(socket.AF_UNIX) as lease:
        lease.settimeout(PATIENCE_S)
        lease.connect(opened.socket_path)
        lease.sendall(opened.ticket)
        data, (descriptor,), _, _ = socket.recv_fds(lease, 16, 1, socket.MSG_CMSG_CLOEXEC)
        used = server.segments.acquire(opened.segment_id, 0, opened.size_bytes)
        assert data == b"\x01"
        assert os.fstat(descriptor).st_ino == os.fstat(used.fd).st_ino
        assert used.owner.startswith("ipv4:127.0.0.1:")
        used.release()
        os.close(descriptor)
    assert server.gone.get(timeout=PATIENCE_S) == used.memory_id
    assert server.segments.count == 0


@pytest.mark.parametrize(
    ("size_bytes", "share", "status"),
    [
        (0, True, grpc.StatusCode.INVALID_ARGUMENT),
        (33 * _MIB, True, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (2**64 - 1, True, grpc.StatusCode.RESOURCE_EXHAUSTED),
        (1, False, grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_a_segment_that_cannot_be_had_is_refused(
    start: Callable[[bool], Server], size_bytes: int, share: bool, status: grpc.StatusCode
):
    server = start(share)
    assert server.refusal(size_bytes) is status
    assert server.segments.count == 0


def test_a_segment_that_can_be_offered_no_more_is_released(start: Callable[[bool], Server]):
    server = start(True)
    assert server.segment_broker
    server.segment_broker.close()
    assert server.refusal(1) is grpc.StatusCode.UNAVAILABLE
    assert (server.segments.count, server.gone.qsize()) == (0, 1)
