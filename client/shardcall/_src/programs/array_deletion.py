"""Deletes arrays from the mesh."""

from __future__ import annotations

from collections.abc import Sequence

from shardcall._src.device_arrays.remote_array import SHORT_TIMEOUT_S
from shardcall._src.programs.pending_calls import PendingCalls
from shardcall._src.rpc.deadline import Deadline
from shardcall._src.rpc.transport import Transport
from shardcall._src.transfer.call_stream import CallStream
from shardcall.v1 import array_service_pb2

_MAX_HANDLES = 1024


def delete(
    transport: Transport,
    stream: CallStream | None,
    pending: PendingCalls,
    handles: Sequence[bytes],
    deadline: Deadline | None = None,
) -> int:
    """Deletes arrays; those that submitted calls without an answer use, or make, in order with the calls.

    Returns:
        The number of arrays that were there.
    """
    used = [handle for handle in handles if pending.is_used(handle)]
    if used and stream is not None:
        delete_on_stream(stream, pending, used)
        handles = [handle for handle in handles if handle not in used]
    return len(used) + _delete_at_once(transport, handles, deadline or Deadline(SHORT_TIMEOUT_S))


def delete_on_stream(stream: CallStream, pending: PendingCalls, handles: Sequence[bytes]) -> None:
    """Deletes arrays after the calls that were sent on a call stream before, and stops loops that made only these."""
    for begin in range(0, len(handles), _MAX_HANDLES):
        stream.delete(handles[begin : begin + _MAX_HANDLES])
    pending.deleted(handles)


def _delete_at_once(transport: Transport, handles: Sequence[bytes], deadline: Deadline) -> int:
    deleted = 0
    for begin in range(0, len(handles), _MAX_HANDLES):
        request = array_service_pb2.DeleteArraysRequest(handles=handles[begin : begin + _MAX_HANDLES])
        deleted += transport.unary(transport.stubs.arrays.DeleteArrays, request, deadline).deleted_count
    return deleted
