"""Reads and puts of a call stream."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from shardcall.v1 import call_stream_pb2, kernel_service_pb2
from shardcall_server.frontend.dispatch.array_reader import ArrayReader
from shardcall_server.frontend.dispatch.array_writer import ArrayWriter
from shardcall_server.frontend.memory.resident_array_table import ResidentArray
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.services.streamed_arrays import ArrayClaim
from shardcall_server.frontend.services.streamed_call import CallOutcome, Reserve


class StreamedRead:
    """The read of an array.

    Args:
        reader: copies arrays from the mesh.
        call: the server call.
        claim: the array.
    """

    scope_subject = "a read"
    finishes = True

    def __init__(self, reader: ArrayReader, call: ServerCall, claim: ArrayClaim) -> None:
        self._reader = reader
        self._call = call
        self._claim = claim

    async def execute(self, resident_arrays: Sequence[ResidentArray | None], reserve: Reserve) -> CallOutcome:
        """Copies the array from the mesh."""
        (resident,) = resident_arrays
        assert resident is not None
        response = await self._reader.read(self._call, resident, lambda: self._claim.launched(()), reserve)
        return response, None, None

    def identity(self) -> bytes:
        """Returns no digest: a read changes nothing."""
        return b""


class StreamedPut:
    """The put of an array.

    Args:
        writer: puts arrays on the mesh.
        call: the server call.
        message: the put as it was sent.
        claim: the array.
    """

    scope_subject = "a put"
    finishes = False

    def __init__(
        self, writer: ArrayWriter, call: ServerCall, message: call_stream_pb2.PutStreamedArray, claim: ArrayClaim
    ) -> None:
        self._writer = writer
        self._call = call
        self._message = message
        self._claim = claim

    async def execute(self, resident_arrays: Sequence[ResidentArray | None], reserve: Reserve) -> CallOutcome:
        """Puts the array on the mesh; later items that name it wait until it is there."""
        resident, plan = await self._writer.put_inline(self._call, self._message)
        self._claim.launched([resident])
        response = kernel_service_pb2.ExecuteResponse()
        result = response.results.add(type=resident.placement.type)
        result.resident.handle = resident.handle
        response.timing.CopyFrom(self._call.finish())
        return response, plan, None

    def identity(self) -> bytes:
        """Returns a digest of all but the call."""
        put = call_stream_pb2.PutStreamedArray()
        put.CopyFrom(self._message)
        put.number, put.timeout_seconds = 0, 0.0
        put.request_id = put.traceparent = put.tracestate = ""
        return hashlib.sha256(put.SerializeToString(deterministic=True)).digest()
