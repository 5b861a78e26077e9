"""Rows of bad input and helpers to write them; the tables are in the modules beside this one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import grpc
from end_to_end.messages import EXHAUSTED, INVALID, NOT_FOUND, UNIMPLEMENTED, mesh, parameter, tensor
from google.protobuf.message import Message

from shardcall.v1 import (
    array_pb2,
    array_service_pb2,
    file_service_pb2,
    kernel_pb2,
    kernel_service_pb2,
    model_service_pb2,
    profile_service_pb2,
    program_pb2,
    segment_service_pb2,
    server_info_service_pb2,
)

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
X8 = mesh(x=8)
F32, F64, C64 = array_pb2.ELEMENT_TYPE_FLOAT32, array_pb2.ELEMENT_TYPE_FLOAT64, array_pb2.ELEMENT_TYPE_COMPLEX64
I32, BOOL = array_pb2.ELEMENT_TYPE_INT32, array_pb2.ELEMENT_TYPE_BOOL
INT4, UINT4 = array_pb2.ELEMENT_TYPE_INT4, array_pb2.ELEMENT_TYPE_UINT4
LEASE = b"lease of bad input"
BIG, MIN = 2**63 - 1, -(2**63)

METHODS = {
    method.name: (f"/{service.full_name}/{method.name}", method)
    for file in (
        kernel_service_pb2,
        model_service_pb2,
        array_service_pb2,
        file_service_pb2,
        segment_service_pb2,
        server_info_service_pb2,
        profile_service_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Every method of the contract: its path and what it takes and gives."""

STATUSES = {
    "KERNEL_NOT_FOUND": NOT_FOUND,
    "ARRAY_LOST": NOT_FOUND,
    "FILE_NOT_FOUND": NOT_FOUND,
    "SEGMENT_NOT_FOUND": NOT_FOUND,
    "CALL_TOO_LARGE": EXHAUSTED,
    "SERVER_BUSY": EXHAUSTED,
    "OUT_OF_DEVICE_MEMORY": EXHAUSTED,
    "RESIDENT_LIMIT": EXHAUSTED,
    "STREAM_REQUIRED": PRECONDITION,
    "PROFILE_STATE": PRECONDITION,
    "UNIMPLEMENTED": UNIMPLEMENTED,
}
"""The status of each reason that a row expects; INVALID_ARGUMENT for the others."""


@dataclass(frozen=True)
class Row:
    """An invalid request, and its answer.

    Attributes:
        name: the fault of the request.
        method: the method, without its service.
        request: its messages, or their bytes; one where the method takes one.
        reason: the reason expected; UNIMPLEMENTED for a method that there is not, which has no details.
        field: the field named; empty where the status is another than INVALID_ARGUMENT.
        metadata: sent with it.
    """

    name: str
    method: str
    request: Sequence[Message | bytes]
    reason: str
    field: str = ""
    metadata: tuple[tuple[str, str | bytes], ...] = ()

    @property
    def status(self) -> grpc.StatusCode:
        return STATUSES.get(self.reason, INVALID)


def send(
    channel: grpc.Channel,
    method: str,
    messages: Sequence[Message | bytes],
    metadata: Sequence[tuple[str, str | bytes]] = (),
    timeout: float = 60,
) -> Iterator[bytes]:
    """Sends messages or their bytes; yields the answers.

    Args:
        channel: to a server.
        method: one of the contract's, or the path of one that there is not.
        messages: one where the method takes one.
        metadata: sent with them.
        timeout: in seconds.
    """
    path, descriptor = METHODS.get(method, (method, None))
    sent = [item if isinstance(item, bytes) else item.SerializeToString() for item in messages]
    streams = descriptor is not None and descriptor.client_streaming
    answers = descriptor is not None and descriptor.server_streaming
    rpc = getattr(channel, f"{'stream' if streams else 'unary'}_{'stream' if answers else 'unary'}")(path)
    answer = rpc(iter(sent) if streams else sent[0], timeout=timeout, metadata=metadata)
    yield from answer if answers else [answer]


def value(argument):
    """A parameter; a tuple is a list of integers."""
    if isinstance(argument, tuple):
        return kernel_pb2.ParameterValue(int_list=program_pb2.IntegerList(values=argument))
    if isinstance(argument, program_pb2.Program):
        return kernel_pb2.ParameterValue(program=argument)
    return parameter(argument)


def call(kernel="diff", parameters=None, **fields):
    values = {name: value(argument) for name, argument in (parameters or {}).items()}
    return kernel_pb2.KernelCall(kernel=kernel, parameters=values, **fields)


def row(name, request, reason, field="", metadata=()):
    """A row of one message, whose class names the method."""
    method = type(request).__name__.removesuffix("Request")
    return Row(f"{method}: {name}", method, [request], reason, field, metadata)


def planned(name, reason, field, asked=None, operands=None):
    """A row that requests a plan: of two axes by default."""
    operands = [tensor(8, 4)] if operands is None else operands
    request = kernel_service_pb2.PlanRequest(call=call() if asked is None else asked, operands=operands)
    return row(name, request, reason, field)


def put(name, reason, field, **header):
    """A row that puts an array: a valid one by default."""
    fields = {"array": inline_operand((8, 4), bytes(256)), "lease_id": LEASE, **header}
    request = array_service_pb2.PutArrayRequest(header=array_service_pb2.PutArrayHeader(**fields))
    return row(name, request, reason, field)


def inline_operand(shape, data, element_type=F64):
    """An operand with its bytes in the message."""
    return kernel_service_pb2.Operand(type=tensor(*shape, element_type=element_type), inline={"data": data})


def shown(text):
    """The beginning and the length of a text, for the names of rows."""
    return f"{text[:9]!r}, {len(text)}"
