"""Errors of calls as messages of the link."""

from __future__ import annotations

from shardcall_core.call_error import CallError, Reason
from shardcall_worker.v1 import link_pb2


def encode_failure(error: CallError) -> link_pb2.Failure:
    """Returns the message of an error."""
    return link_pb2.Failure(
        reason=error.reason.value, message=error.message, field=error.field, metadata=error.metadata
    )


def decode_failure(failure: link_pb2.Failure) -> CallError:
    """Returns the error of a message."""
    return CallError(Reason(failure.reason), failure.message, field=failure.field, metadata=dict(failure.metadata))
