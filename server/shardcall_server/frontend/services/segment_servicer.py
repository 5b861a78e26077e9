"""The service that opens shared-memory segments for clients on the server's host."""

from __future__ import annotations

from functools import partial

from shardcall.v1 import segment_service_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.memory.segment_broker import SegmentBroker
from shardcall_server.frontend.memory.segments import SegmentTable
from shardcall_server.frontend.rpc.drain import Drain
from shardcall_server.frontend.rpc.server_call import ServerCall


class SegmentServicer:
    """`shardcall.v1.SegmentService`; its method takes a `ServerCall` instead of gRPC's context.

    Args:
        segment_broker: passes segments to clients; None if segments are off or unavailable.
        drain: waits for the calls for which segments are opened.
    """

    def __init__(self, segments: SegmentTable, segment_broker: SegmentBroker | None, drain: Drain) -> None:
        self._drain = drain
        self._segments = segments
        self._segment_broker = segment_broker

    def OpenSegment(  # noqa: N802  # the contract's name
        self, request: segment_service_pb2.OpenSegmentRequest, call: ServerCall
    ) -> segment_service_pb2.OpenSegmentResponse:
        """Opens a segment and returns a ticket for it."""
        segment_broker = self._segment_broker
        if segment_broker is None:
            raise CallError(
                Reason.NOT_SUPPORTED, "this server shares no memory with its clients; send the arrays as a stream"
            )
        if not request.size_bytes:
            raise CallError(
                Reason.MALFORMED_REQUEST, "size_bytes is 0; request a segment of 1 or more bytes", field="size_bytes"
            )
        segment = self._segments.open(
            call.owner, request.size_bytes, lambda: call.check("opening a segment"), call.principal_name
        )
        segment.on_used = partial(self._drain.settle, segment.segment_id)
        self._drain.expect(segment.segment_id, call)
        try:
            call.check("opening a segment")
            ticket = segment_broker.offer(segment)
        except BaseException:
            segment.release_lease()
            raise
        return segment_service_pb2.OpenSegmentResponse(
            segment_id=segment.segment_id,
            size_bytes=segment.nbytes,
            socket_path=segment_broker.socket_path,
            ticket=ticket,
            ticket_seconds=segment_broker.ticket_s,
            timing=call.finish(),
        )
