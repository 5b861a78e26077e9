"""Translates the errors of gRPC to those of this package."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, cast

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from shardcall.v1 import call_stream_pb2, error_pb2, timing_pb2
from shardcall_core.call_error import CallError
from shardcall_core.types import errors, timing
from shardcall_core.types.arguments import caller_name
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.timing import Timing
from shardcall_core.versions import build_version

DOMAIN = "shardcall"
TIMING_KEY = "shardcall-timing-bin"
_DETAILS_KEY = "grpc-status-details-bin"
_MIN_SHOWN_S = 0.001
_SERVERS_FAULT = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
_REASON_ALONE = re.compile(r" \(([A-Z_]+)\)$")  # the status of a call that stalled has no details
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OF_VERSIONS = frozenset(
    {"KERNEL_NOT_FOUND", "MALFORMED_REQUEST", "UNKNOWN_PARAMETER", "UNKNOWN_STRATEGY", "UNSUPPORTED_ELEMENT_TYPE"}
)
_REASONS = {name.removeprefix("ERROR_REASON_"): code for name, code in error_pb2.ErrorReason.items()}

ERRORS_BY_REASON: Mapping[int, type[ShardcallError]] = MappingProxyType(
    {
        error_pb2.ERROR_REASON_MALFORMED_REQUEST: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_KERNEL_NOT_FOUND: errors.KernelNotFoundError,
        error_pb2.ERROR_REASON_UNKNOWN_PARAMETER: errors.UnknownParameterError,
        error_pb2.ERROR_REASON_INVALID_PARAMETER: errors.InvalidParameterError,
        error_pb2.ERROR_REASON_AXIS_OUT_OF_RANGE: errors.AxisError,
        error_pb2.ERROR_REASON_INVALID_OPERAND: errors.InvalidOperandError,
        error_pb2.ERROR_REASON_INVALID_SHAPE: errors.InvalidOperandError,
        error_pb2.ERROR_REASON_SIZE_MISMATCH: errors.InvalidOperandError,
        error_pb2.ERROR_REASON_UNSUPPORTED_ELEMENT_TYPE: errors.OperandTypeError,
        error_pb2.ERROR_REASON_INVALID_MESH: errors.ShardingError,
        error_pb2.ERROR_REASON_NOT_ENOUGH_DEVICES: errors.ShardingError,
        error_pb2.ERROR_REASON_UNKNOWN_MESH_AXIS: errors.ShardingError,
        error_pb2.ERROR_REASON_MESH_AXIS_REUSED: errors.ShardingError,
        error_pb2.ERROR_REASON_SPEC_TOO_LONG: errors.ShardingError,
        error_pb2.ERROR_REASON_UNKNOWN_STRATEGY: errors.ShardingError,
        error_pb2.ERROR_REASON_STRATEGY_UNSUPPORTED: errors.ShardingError,
        error_pb2.ERROR_REASON_CALL_TOO_LARGE: errors.ResourceExhaustedError,
        error_pb2.ERROR_REASON_STREAM_REQUIRED: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_SERVER_BUSY: errors.ResourceExhaustedError,
        error_pb2.ERROR_REASON_OUT_OF_HOST_MEMORY: errors.OutOfHostMemoryError,
        error_pb2.ERROR_REASON_OUT_OF_DEVICE_MEMORY: errors.OutOfDeviceMemoryError,
        error_pb2.ERROR_REASON_DEADLINE_EXCEEDED: errors.DeadlineExceededError,
        error_pb2.ERROR_REASON_CANCELLED: errors.CallCancelledError,
        error_pb2.ERROR_REASON_MESH_RESTARTED: errors.MeshRestartedError,
        error_pb2.ERROR_REASON_MESH_NOT_READY: errors.ServerUnavailableError,
        error_pb2.ERROR_REASON_SERVER_DRAINING: errors.ServerUnavailableError,
        error_pb2.ERROR_REASON_NOT_SUPPORTED: errors.NotSupportedError,
        error_pb2.ERROR_REASON_COMPILE_FAILED: errors.CompileFailedError,
        error_pb2.ERROR_REASON_INTERNAL: errors.InternalServerError,
        error_pb2.ERROR_REASON_ARRAY_LOST: errors.ArrayLostError,
        error_pb2.ERROR_REASON_SEGMENT_NOT_FOUND: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_RESIDENT_LIMIT: errors.ResourceExhaustedError,
        error_pb2.ERROR_REASON_TOKEN_REQUIRED: errors.AccessDeniedError,
        error_pb2.ERROR_REASON_SCOPE_MISSING: errors.AccessDeniedError,
        error_pb2.ERROR_REASON_QUOTA_EXCEEDED: errors.ResourceExhaustedError,
        error_pb2.ERROR_REASON_EXECUTE_LIMIT: errors.DeadlineExceededError,
        error_pb2.ERROR_REASON_COMPILE_LIMIT: errors.DeadlineExceededError,
        error_pb2.ERROR_REASON_PROGRAM_REFUSED: errors.ProgramRefusedError,
        error_pb2.ERROR_REASON_REQUEST_ID_REUSED: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_PROFILE_STATE: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_INVALID_VALUE: errors.InvalidOperandError,
        error_pb2.ERROR_REASON_PARAMETER_TYPE: errors.ParameterTypeError,
        error_pb2.ERROR_REASON_OPERAND_COUNT: errors.OperandCountError,
        error_pb2.ERROR_REASON_TRANSFER_REQUIRED: errors.ShardingError,
        error_pb2.ERROR_REASON_KERNEL_FAILED_KNOWN_ANSWERS: errors.MiscompiledKernelError,
        error_pb2.ERROR_REASON_STREAM_IDLE: errors.DeadlineExceededError,
        error_pb2.ERROR_REASON_INDEX_OUT_OF_RANGE: errors.IndexOutOfRangeError,
        error_pb2.ERROR_REASON_INVALID_MATRIX: errors.LinAlgError,
        error_pb2.ERROR_REASON_NAME_TAKEN: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_FILE_NOT_FOUND: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_FILE_DAMAGED: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_FILE_LIMIT: errors.ResourceExhaustedError,
        error_pb2.ERROR_REASON_FILES_UNAVAILABLE: errors.InvalidRequestError,
        error_pb2.ERROR_REASON_ARRAY_READ_ONLY: errors.AccessDeniedError,
    }
)
"""The class of every reason of the protocol."""

# Statuses without a reason come from gRPC itself, from a proxy, or from another server.
ERRORS_BY_STATUS: Mapping[grpc.StatusCode, tuple[type[ShardcallError], str]] = MappingProxyType(
    {
        grpc.StatusCode.OK: (errors.ProtocolError, "{address} ended the call without an answer: {details}"),
        grpc.StatusCode.CANCELLED: (errors.CallCancelledError, "the call was cancelled: {details}"),
        grpc.StatusCode.UNKNOWN: (errors.InternalServerError, "the server failed: {details}"),
        grpc.StatusCode.INVALID_ARGUMENT: (
            errors.InvalidRequestError,
            "the server refused the request: {details}",
        ),
        grpc.StatusCode.DEADLINE_EXCEEDED: (
            errors.DeadlineExceededError,
            "no answer from {address} within {timeout}; raise timeout=",
        ),
        grpc.StatusCode.NOT_FOUND: (errors.InvalidRequestError, "the server did not find it: {details}"),
        grpc.StatusCode.ALREADY_EXISTS: (
            errors.InvalidRequestError,
            "the server refused the request: {details}",
        ),
        grpc.StatusCode.PERMISSION_DENIED: (
            errors.AccessDeniedError,
            "{address} refuses this caller: {details}",
        ),
        grpc.StatusCode.RESOURCE_EXHAUSTED: (
            errors.ResourceExhaustedError,
            "a limit of gRPC was exceeded: {details}",
        ),
        grpc.StatusCode.FAILED_PRECONDITION: (
            errors.InvalidRequestError,
            "the server refused the request: {details}",
        ),
        grpc.StatusCode.ABORTED: (errors.InternalServerError, "the server gave the call up: {details}"),
        grpc.StatusCode.OUT_OF_RANGE: (
            errors.InvalidRequestError,
            "the server refused the request: {details}",
        ),
        grpc.StatusCode.UNIMPLEMENTED: (
            errors.NotSupportedError,
            "what answers at {address} does not serve this call ({details}); see whether it is a shardcall server",
        ),
        grpc.StatusCode.INTERNAL: (
            errors.InternalServerError,
            "the connection to {address} failed: {details}",
        ),
        grpc.StatusCode.UNAVAILABLE: (
            errors.ServerUnavailableError,
            "the server at {address} went away or cannot be reached; see whether it runs, and repeat the call",
        ),
        grpc.StatusCode.DATA_LOSS: (errors.InternalServerError, "the server lost data: {details}"),
        grpc.StatusCode.UNAUTHENTICATED: (
            errors.AccessDeniedError,
            "{address} does not know this caller: {details}",
        ),
    }
)
"""The class and the message of every gRPC status without a reason; ``metadata["grpc"]`` holds gRPC's message."""


class ItemStatus(grpc.RpcError):
    """The status of a call of a call stream, as an error of gRPC for `to_error`."""

    def __init__(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, str | bytes], ...] = ()) -> None:
        super().__init__()
        self._code, self._details, self._trailing = code, details, trailing

    @classmethod
    def of(cls, error: grpc.RpcError) -> ItemStatus:
        """Returns the status of an RPC without a reference to the RPC."""
        call = cast("grpc.Call", error)
        return cls(call.code(), call.details() or "", tuple(call.trailing_metadata() or ()))

    def code(self) -> grpc.StatusCode:
        """Returns the code."""
        return self._code

    def details(self) -> str:
        """Returns the message."""
        return self._details

    def trailing_metadata(self) -> tuple[Any, ...]:
        """Returns the trailing metadata, with the details and the timing."""
        return self._trailing


def answer_status(answer: call_stream_pb2.StreamedAnswer) -> ItemStatus:
    """Returns the status of a failed call of a call stream."""
    try:
        status = status_pb2.Status.FromString(answer.status)
    except DecodeError:
        return ItemStatus(grpc.StatusCode.UNKNOWN, "the status of the call cannot be parsed")
    trailing = ((_DETAILS_KEY, answer.status), (TIMING_KEY, answer.timing.SerializeToString()))
    return ItemStatus(
        _CODES.get(status.code, grpc.StatusCode.UNKNOWN), status.message, trailing[: 1 + answer.HasField("timing")]
    )


def to_error(
    error: grpc.RpcError,
    address: str,
    timeout_s: float,
    round_trip_s: float = 0.0,
    kernel: str = "",
    request_id: str = "",
) -> ShardcallError:
    """Returns the error to raise for an error of gRPC.

    Args:
        error: the error that a stub raised.
        address: the address of the server, as the caller wrote it.
        round_trip_s: the duration of the call, for the timing.
        kernel: the kernel whose names of operands and specs the error's field uses.
    """
    call = cast("grpc.Call", error)
    status = call.code() or grpc.StatusCode.UNKNOWN
    message = call.details() or "no further details"
    spent = _timing(_trailing(call).get(TIMING_KEY), round_trip_s)
    details = _details(call)
    if not details.reason and (alone := _REASON_ALONE.search(message)):
        details.reason, message = alone[1], message[: alone.start()]
    error_class, sentence = ERRORS_BY_STATUS[status]
    if details.reason:
        # A newer server may have reasons that this client does not know; its message is kept.
        error_class = ERRORS_BY_REASON.get(_REASONS.get(details.reason, 0), error_class)
    else:
        details.metadata = {"grpc": message}
        message = sentence.format(address=address, timeout=f"{timeout_s:g} s", details=_plain(message))
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        message += _spent(spent, timeout_s)
    if status in _SERVERS_FAULT and request_id:
        message += f" (request {request_id})"
    return error_class(
        message,
        reason=details.reason,
        field=caller_name(kernel, details.field),
        metadata=details.metadata,
        timing=spent,
        status=status,
        retry_after_s=details.retry_after_s,
        request_id=request_id,
    )


def add_versions(error: ShardcallError, server_version: str) -> None:
    """Adds the versions of server and client to an error that their difference may explain.

    Args:
        error: an error of the server, or the refusal of its answer.
        server_version: the server's version; empty if it is not known yet.
    """
    is_refusal = error.status is grpc.StatusCode.UNIMPLEMENTED or error.reason in _OF_VERSIONS
    if (is_refusal or isinstance(error, errors.ProtocolError)) and (ours := build_version()) != server_version:
        both = f"the server is shardcall {server_version}, and this client {ours}; install the same on both sides"
        error.message += f" ({both if server_version else f'this client is shardcall {ours}'})"


def refusal(error: CallError, kernel: str) -> ShardcallError:
    """Returns the error to raise for a call that the table of functions refuses, as the server would."""
    return ERRORS_BY_REASON[_REASONS[error.reason]](
        error.message, reason=error.reason, field=caller_name(kernel, error.field), metadata=error.metadata
    )


@dataclass
class _Details:
    """The details of a status."""

    reason: str = ""
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    field: str = ""
    retry_after_s: float | None = None


def _details(call: grpc.Call) -> _Details:
    details = _Details()
    packed = _trailing(call).get(_DETAILS_KEY)
    if not isinstance(packed, bytes):
        return details
    try:
        for item in status_pb2.Status.FromString(packed).details:
            _add(item, details)
    except DecodeError:
        return _Details()
    return details


def _add(item: any_pb2.Any, details: _Details) -> None:
    if item.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
        info = error_details_pb2.ErrorInfo.FromString(item.value)
        if info.domain == DOMAIN:
            details.reason, details.metadata = info.reason, dict(info.metadata)
    elif item.Is(error_details_pb2.BadRequest.DESCRIPTOR):
        violations = error_details_pb2.BadRequest.FromString(item.value).field_violations
        details.field = violations[0].field if violations else ""
    elif item.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
        delay = error_details_pb2.RetryInfo.FromString(item.value).retry_delay
        details.retry_after_s = delay.ToTimedelta().total_seconds()


def _trailing(call: grpc.Call) -> dict[str, str | bytes]:
    return dict(call.trailing_metadata() or ())


def _timing(packed: str | bytes | None, round_trip_s: float) -> Timing | None:
    if not isinstance(packed, bytes):
        return None
    try:
        return timing.from_proto(timing_pb2.Timing.FromString(packed), round_trip_s)
    except DecodeError:
        return None


def _spent(spent: Timing | None, timeout_s: float) -> str:
    if spent is None:
        return ""
    phases = [(field.name, getattr(spent, field.name)) for field in fields(spent) if field.name in timing.PHASES]
    shown = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in phases if seconds >= _MIN_SHOWN_S)
    parts = [f"the server's time: {shown}"] if shown else []
    # The server's message names the time left when the last attempt reached it, which may be close to 0.
    if spent.transport > timeout_s / 10:
        complete = f"{timeout_s:g} s"
        if spent.transport > timeout_s:
            complete = f"{spent.round_trip:.3g} s until this error arrived"
        went_by = f"of {complete}, {spent.transport:.3g} s passed"
        parts.append(f"{went_by} in the client, in transport or in earlier attempts")
    return f" ({'; '.join(parts)})" if parts else ""


def _plain(details: str) -> str:
    """Returns details without the addresses and nesting that gRPC adds to connection failures."""
    inner = re.findall(r"(?:ipv[46]|unix):\S+: ([^;{]+)", details)
    return str(inner[-1]).strip() if inner else details.partition("\n")[0]
