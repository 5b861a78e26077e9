"""Calls in the contract's own words, and what their errors must hold."""

import os
from dataclasses import dataclass

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from shardcall.v1 import array_pb2, error_pb2, kernel_pb2, kernel_service_pb2, mesh_pb2, timing_pb2
from shardcall_core.wire import token_file

F64 = array_pb2.ELEMENT_TYPE_FLOAT64
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
EXHAUSTED, UNIMPLEMENTED = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED


def tensor(*shape, element_type=F64):
    return array_pb2.ArrayType(element_type=element_type, shape=shape)


def mesh(*device_ids, **axes):
    return mesh_pb2.Mesh(
        axes=[mesh_pb2.MeshAxis(name=name, size=size) for name, size in axes.items()], device_ids=device_ids
    )


def spec(*entries):
    names = [() if e is None else (e,) if isinstance(e, str) else e for e in entries]
    entries = [mesh_pb2.PartitionSpecEntry(axis_names=n) for n in names]
    return mesh_pb2.OptionalPartitionSpec(spec=mesh_pb2.PartitionSpec(entries=entries))


def parameter(value):
    match value:
        case bool():
            return kernel_pb2.ParameterValue(bool_value=value)
        case int():
            return kernel_pb2.ParameterValue(int_value=value)
        case float():
            return kernel_pb2.ParameterValue(float_value=value)
        case str():
            return kernel_pb2.ParameterValue(string_value=value)
        case _:
            return kernel_pb2.ParameterValue()


def call(kernel="diff", parameters=None, **fields):
    values = {name: parameter(value) for name, value in (parameters or {}).items()}
    return kernel_pb2.KernelCall(kernel=kernel, parameters=values, **fields)


def operand(array, **fields):
    codes = {"float64": F64, "bool": array_pb2.ELEMENT_TYPE_BOOL, "int8": array_pb2.ELEMENT_TYPE_INT4}
    fields = fields or {"inline": kernel_service_pb2.InlineTensor(data=array.tobytes())}
    return kernel_service_pb2.Operand(type=tensor(*array.shape, element_type=codes[array.dtype.name]), **fields)


def execute(*operands, **fields):
    return kernel_service_pb2.ExecuteRequest(call=call(), operands=operands, **fields)


def header(*shapes, **fields):
    operands = [kernel_service_pb2.Operand(type=tensor(*shape), streamed={}) for shape in shapes]
    return kernel_service_pb2.ExecuteStreamRequest(
        header=kernel_service_pb2.ExecuteRequest(call=call(**fields), operands=operands)
    )


def chunk(index, offset, size):
    return kernel_service_pb2.ExecuteStreamRequest(
        chunk=array_pb2.TensorChunk(index=index, offset=offset, data=bytes(size))
    )


def details(error: grpc.RpcError) -> dict:
    status = rpc_status.from_call(error)
    assert status is not None, f"an error without details: {error}"
    entries = {}
    for detail in status.details:
        for detail_class in (
            error_details_pb2.ErrorInfo,
            error_details_pb2.BadRequest,
            error_details_pb2.QuotaFailure,
            error_details_pb2.RetryInfo,
        ):
            if detail.Is(detail_class.DESCRIPTOR):
                message = detail_class()
                detail.Unpack(message)
                entries[detail_class.__name__] = message
    return entries


def check(error: grpc.RpcError, status, reason: str, field: str, says: str) -> None:
    assert error.code() is status, error
    entries = details(error)
    assert entries["ErrorInfo"].reason == reason
    assert entries["ErrorInfo"].domain == "shardcall"
    assert f"ERROR_REASON_{reason}" in error_pb2.ErrorReason.keys()  # noqa: SIM118  # an enum is no dictionary
    assert says in error.details()
    if status is INVALID:
        assert entries["BadRequest"].field_violations[0].field == field
    if status is EXHAUSTED:
        assert entries["QuotaFailure"].violations
    metadata = dict(error.trailing_metadata())
    timing = timing_pb2.Timing.FromString(metadata["shardcall-timing-bin"])
    assert timing.total_seconds > 0
    assert sum(len(k) + len(v) for k, v in metadata.items()) + len(error.details()) < 4096


def token_of(name: str) -> str:
    """The token by which the tests' servers know a principal."""
    (entry,) = (entry for entry in token_file.read(os.environ[token_file.FILE_VARIABLE]) if entry.name == name)
    return entry.token


@dataclass
class Details(grpc.ClientCallDetails):
    """The metadata of a call."""

    method: str
    timeout: float | None
    metadata: list
    credentials: object
    wait_for_ready: bool | None
    compression: object


class ShowToken(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Shows a token with every call."""

    def __init__(self, token: str) -> None:
        self._shown = ("authorization", f"Bearer {token}")

    def _shows(self, go_on, details, request):
        metadata = [*(details.metadata or ()), self._shown]
        rest = (details.credentials, details.wait_for_ready, details.compression)
        return go_on(Details(details.method, details.timeout, metadata, *rest), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _shows


SMALL_WINDOW = (("grpc.http2.bdp_probe", 0),)
"""Options of a channel that receives only 64 KiB of a stream that is not read; by default it may be tens of MiB."""


def open_channel(address, options=(), *, token=None):
    """A bare channel to a server of the tests, for stubs of the contract; this user's own token goes with each call.

    Args:
        address: of the server.
        options: of gRPC.
        token: another one; empty for none.
    """
    channel = grpc.insecure_channel(address, options=list(options))
    token = token_of(token_file.user_name()) if token is None else token
    return grpc.intercept_channel(channel, ShowToken(token)) if token else channel
