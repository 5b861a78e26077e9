"""Conversion of calls from the contract's messages to plain values."""

from __future__ import annotations

from collections.abc import Sequence

from shardcall.v1 import array_pb2, kernel_pb2, program_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions.signature import ParameterValue
from shardcall_core.graphs.messages import MalformedProgramError
from shardcall_core.types import parameters
from shardcall_server.compilation.resolve import Request
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.link.wire import decode_mesh, decode_operand_types, decode_spec


def decode_request(call: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType]) -> Request:
    """Returns a call as plain values; checks only what these cannot represent.

    Raises:
        CallError: as `decode_operand_types`, and for a message that is no program in its canonical form.
    """
    return Request(
        parameters={name: _parameter(name, value) for name, value in call.parameters.items()},
        operands=decode_operand_types(operands),
        mesh=decode_mesh(call.mesh),
        device_ids=tuple(call.mesh.device_ids),
        in_specs=tuple(decode_spec(s) for s in call.in_specs),
        out_specs=tuple(decode_spec(s) for s in call.out_specs),
        strategy=call.strategy or AUTO,
    )


def encode_parameter(value: object) -> kernel_pb2.ParameterValue:
    """Returns the message for the value of a static parameter."""
    match value:
        case None:
            return kernel_pb2.ParameterValue()
        case bool():
            return kernel_pb2.ParameterValue(bool_value=value)
        case int():
            return kernel_pb2.ParameterValue(int_value=value)
        case float():
            return kernel_pb2.ParameterValue(float_value=value)
        case str():
            return kernel_pb2.ParameterValue(string_value=value)
        case tuple():
            return kernel_pb2.ParameterValue(int_list=program_pb2.IntegerList(values=value))
    raise TypeError(f"a parameter's value may not be a {type(value).__name__}")


def _parameter(name: str, message: kernel_pb2.ParameterValue) -> ParameterValue:
    try:
        return parameters.from_proto(message)
    except MalformedProgramError as error:
        raise CallError(Reason.INVALID_PARAMETER, f"{name}.{error}", field=f"{name}.{error.field}") from None
