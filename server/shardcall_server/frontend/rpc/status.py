"""Conversion of a `CallError` to a gRPC status with details."""

from __future__ import annotations

import random
from typing import Any

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import CallError, Reason, shorten

DOMAIN = "shardcall"
TIMING_KEY = "shardcall-timing-bin"

# A status of 8 KiB or more arrives at random as RESOURCE_EXHAUSTED, so all of it stays below 4 KiB.
_MAX_MESSAGE_BYTES = 900
_MAX_DESCRIPTION_BYTES = 300
_MAX_VALUE_BYTES = 100
_MAX_VALUES = 5
_RETRY_AFTER_MS = range(500, 1500)  # random, so that callers refused together do not retry together

STATUS_CODES: dict[Reason, grpc.StatusCode] = {
    Reason.MALFORMED_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.KERNEL_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.UNKNOWN_PARAMETER: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_PARAMETER: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.AXIS_OUT_OF_RANGE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_OPERAND: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_SHAPE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.SIZE_MISMATCH: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNSUPPORTED_ELEMENT_TYPE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_MESH: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.NOT_ENOUGH_DEVICES: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNKNOWN_MESH_AXIS: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.MESH_AXIS_REUSED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.SPEC_TOO_LONG: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.UNKNOWN_STRATEGY: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.STRATEGY_UNSUPPORTED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.CALL_TOO_LARGE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.STREAM_REQUIRED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SERVER_BUSY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.OUT_OF_HOST_MEMORY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.OUT_OF_DEVICE_MEMORY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DEADLINE_EXCEEDED: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.CANCELLED: grpc.StatusCode.CANCELLED,
    Reason.MESH_RESTARTED: grpc.StatusCode.UNAVAILABLE,
    Reason.MESH_NOT_READY: grpc.StatusCode.UNAVAILABLE,
    Reason.SERVER_DRAINING: grpc.StatusCode.UNAVAILABLE,
    Reason.NOT_SUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    Reason.COMPILE_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INTERNAL: grpc.StatusCode.INTERNAL,
    Reason.ARRAY_LOST: grpc.StatusCode.NOT_FOUND,
    Reason.SEGMENT_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.RESIDENT_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOKEN_REQUIRED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.SCOPE_MISSING: grpc.StatusCode.PERMISSION_DENIED,
    Reason.QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.EXECUTE_LIMIT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.COMPILE_LIMIT: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.PROGRAM_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.REQUEST_ID_REUSED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.PROFILE_STATE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.INVALID_VALUE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.PARAMETER_TYPE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.OPERAND_COUNT: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.TRANSFER_REQUIRED: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.KERNEL_FAILED_KNOWN_ANSWERS: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.STREAM_IDLE: grpc.StatusCode.DEADLINE_EXCEEDED,
    Reason.INDEX_OUT_OF_RANGE: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.INVALID_MATRIX: grpc.StatusCode.INVALID_ARGUMENT,
    Reason.NAME_TAKEN: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.FILE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.FILE_DAMAGED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.FILE_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.FILES_UNAVAILABLE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.ARRAY_READ_ONLY: grpc.StatusCode.PERMISSION_DENIED,
}

_QUOTAS = {
    Reason.CALL_TOO_LARGE,
    Reason.SERVER_BUSY,
    Reason.OUT_OF_HOST_MEMORY,
    Reason.OUT_OF_DEVICE_MEMORY,
    Reason.RESIDENT_LIMIT,
    Reason.QUOTA_EXCEEDED,
    Reason.FILE_LIMIT,
}
_WORTH_WAITING = {Reason.SERVER_BUSY, Reason.QUOTA_EXCEEDED, Reason.OUT_OF_HOST_MEMORY, Reason.MESH_NOT_READY}
_NOT_WORTH_WAITING = (_QUOTAS - _WORTH_WAITING) | {Reason.MESH_RESTARTED}  # after a restart, the caller decides


class CallStatus(grpc.Status):
    """The status of a failed call: code, message, and details and timing in the trailing metadata.

    Attributes:
        serialized: the `google.rpc.Status` with the details.
        timing: the time of each phase.
        retry_ms: the delay before a retry: -1 for no automatic retry, None to leave it to the client.
    """

    def __init__(self, error: CallError, timing: timing_pb2.Timing) -> None:
        self.code = STATUS_CODES[error.reason]
        self.details = _fit(error.message, _MAX_MESSAGE_BYTES)
        self.timing = timing
        retry_ms = self.retry_ms = _retry_ms(error.reason)
        status = status_pb2.Status(
            code=self.code.value[0], message=self.details, details=[_pack(d) for d in _details(error, retry_ms)]
        )
        self.serialized = status.SerializeToString()
        metadata: list[tuple[str, str | bytes]] = [
            ("grpc-status-details-bin", self.serialized),
            (TIMING_KEY, timing.SerializeToString()),
        ]
        if retry_ms is not None:
            metadata.append(("grpc-retry-pushback-ms", str(retry_ms)))
        self.trailing_metadata = tuple(metadata)


def _retry_ms(reason: Reason) -> int | None:
    """Returns the delay before a retry: -1 for no automatic retry, None to leave it to the client."""
    if reason in _WORTH_WAITING:
        return random.choice(_RETRY_AFTER_MS)  # noqa: S311  # no secret
    return -1 if reason in _NOT_WORTH_WAITING else None


def _details(error: CallError, retry_ms: int | None) -> list[Any]:
    values = {
        _fit(k, _MAX_VALUE_BYTES): _fit(v, _MAX_VALUE_BYTES) for k, v in list(error.metadata.items())[:_MAX_VALUES]
    }
    details: list[Any] = [error_details_pb2.ErrorInfo(reason=error.reason.value, domain=DOMAIN, metadata=values)]
    field = _fit(error.field, _MAX_VALUE_BYTES)
    description = _fit(error.message, _MAX_DESCRIPTION_BYTES)
    if STATUS_CODES[error.reason] is grpc.StatusCode.INVALID_ARGUMENT:
        violation = error_details_pb2.BadRequest.FieldViolation(field=field or "request", description=description)
        details.append(error_details_pb2.BadRequest(field_violations=[violation]))
    if error.reason in _QUOTAS:
        quota = error_details_pb2.QuotaFailure.Violation(subject=_subject(error), description=description)
        details.append(error_details_pb2.QuotaFailure(violations=[quota]))
    if retry_ms is not None and retry_ms >= 0:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(retry_ms)
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    return details


def _subject(error: CallError) -> str:
    """Returns the holder and the name of the limit that was exceeded, "client:…" or "server:…"."""
    whose = "client" if error.reason is Reason.QUOTA_EXCEEDED else "server"
    limit = error.metadata.get("limit", "")
    return f"{whose}:{error.reason.value.lower() if not limit or limit.isdigit() else _fit(limit, _MAX_VALUE_BYTES)}"


def _fit(text: str, limit_bytes: int) -> str:
    """Shortens text to a number of bytes as gRPC encodes it, with three bytes for each non-ASCII byte."""
    limit = limit_bytes
    while True:
        fitting = shorten(text, limit)
        plain = len(fitting) - fitting.count("%") if fitting.isascii() else sum(map(_is_plain, fitting))
        nbytes = 3 * len(fitting.encode()) - 2 * plain
        if nbytes <= limit_bytes:
            return fitting
        limit = limit * limit_bytes // nbytes - 1


def _is_plain(character: str) -> bool:
    return character.isascii() and character != "%"


def _pack(detail: Any) -> any_pb2.Any:
    packed = any_pb2.Any()
    packed.Pack(detail)
    return packed
