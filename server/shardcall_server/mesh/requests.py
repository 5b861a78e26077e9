"""Conversion of calls from the contract's messages to plain values."""

from __future__ import annotations

from collections.abc import Sequence

from shardcall.v1 import array_pb2, kernel_pb2
from shardcall_core.functions.signature import ParameterValue
from shardcall_server.compilation.resolve import Request
from shardcall_server.kernels.core.call_checks import AUTO
from shardcall_server.link.wire import decode_mesh, decode_operand_types, decode_spec


def decode_request(call: kernel_pb2.KernelCall, operands: Sequence[array_pb2.ArrayType]) -> Request:
    """Returns a call as plain values; checks only what these cannot represent."""
    return Request(
        parameters={name: _parameter(value) for name, value in call.parameters.items()},
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
            return kernel_pb2.ParameterValue(int_list=kernel_pb2.IntegerList(values=value))
    raise TypeError(f"a parameter's value may not be a {type(value).__name__}")


def _parameter(message: kernel_pb2.ParameterValue) -> ParameterValue:
    field = message.WhichOneof("kind")
    if field is None:
        return None
    value: bool | int | float | str | kernel_pb2.IntegerList = getattr(message, field)
    return tuple(value.values) if isinstance(value, kernel_pb2.IntegerList) else value
