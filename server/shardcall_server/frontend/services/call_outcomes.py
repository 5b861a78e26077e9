"""Conversion of the exceptions of calls to statuses, and the records of calls that failed."""

from __future__ import annotations

import secrets

import grpc
import structlog

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.observability.call_recorder import CallRecorder
from shardcall_server.frontend.rpc.server_call import ServerCall
from shardcall_server.frontend.rpc.status import CallStatus


def failed_call(recorder: CallRecorder, name: str, error: Exception, call: ServerCall | None) -> CallStatus:
    """Returns the status of a failed call, and records it.

    An unexpected exception becomes INTERNAL with a fixed message and an id that is also in the log: names, paths and
    tracebacks never leave the server.

    Args:
        recorder: notified of the end of the call.
        name: the method's name without its service.
        error: what the call raised.
        call: the call; None if it was refused before a `ServerCall` was made.
    """
    call_error = to_call_error((call.cut_off_by if call else None) or error)
    status = CallStatus(call_error, call.finish() if call else timing_pb2.Timing())
    recorder.finish(name, call, status.code, call_error.reason)
    return status


def to_call_error(error: Exception) -> CallError:
    """Returns the error that the caller gets for an exception."""
    if isinstance(error, grpc.RpcError):  # raised when the caller has disconnected
        return CallError(Reason.CANCELLED, "the caller cancelled the call")
    if isinstance(error, CallError):
        return error
    error_id = secrets.token_hex(4)
    structlog.get_logger().error("a call failed unexpectedly", error_id=error_id, exc_info=error)
    return CallError(
        Reason.INTERNAL,
        f"internal server error {error_id}; report this id to the administrator",
        metadata={"error_id": error_id},
    )
