"""Static parameters: the values that change the compiled program."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import SupportsIndex, TypeAlias

import numpy as np

from shardcall.v1 import kernel_pb2, program_pb2
from shardcall_core.graphs.graph import Graph
from shardcall_core.graphs.messages import from_message, to_message
from shardcall_core.types.errors import InvalidParameterError, ParameterTypeError
from shardcall_core.types.specs import PartitionSpec

ParameterLike: TypeAlias = bool | int | float | str | SupportsIndex | Sequence[SupportsIndex] | None
"""A parameter of a caller: None, a bool, an integer, a float, a string or a sequence of integers."""

Parameter: TypeAlias = bool | int | float | str | tuple[int, ...] | Graph | None
"""The value of a parameter in a server's message."""

_INT64 = range(-(2**63), 2**63)


def to_proto(name: str, value: ParameterLike | Graph) -> kernel_pb2.ParameterValue:
    """Returns a parameter as a message.

    Raises:
        ParameterTypeError: if the value has another type.
        InvalidParameterError: if an integer does not fit 64 bits.
    """
    if value is None:
        return kernel_pb2.ParameterValue()
    if isinstance(value, bool | np.bool_):
        return kernel_pb2.ParameterValue(bool_value=bool(value))
    if isinstance(value, str):
        return kernel_pb2.ParameterValue(string_value=str(value))
    if isinstance(value, float | np.floating):
        return kernel_pb2.ParameterValue(float_value=float(value))
    if isinstance(value, SupportsIndex) and not (isinstance(value, np.ndarray) and value.ndim):
        return kernel_pb2.ParameterValue(int_value=_integer(name, value))
    if isinstance(value, Graph):
        return kernel_pb2.ParameterValue(program=to_message(value))
    if isinstance(value, PartitionSpec):
        raise ParameterTypeError(
            f"{name!r} is a spec, {value}, and no parameter; give in_specs=[…], one for each operand, or out_specs=[…]",
            field=name,
        )
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, bytes | bytearray | memoryview):
        integers = [_integer(name, item) for item in value]
        return kernel_pb2.ParameterValue(int_list=program_pb2.IntegerList(values=integers))
    raise _refusal(name, value)


def to_protos(values: Mapping[str, ParameterLike | Graph]) -> dict[str, kernel_pb2.ParameterValue]:
    """Returns parameters by name as messages."""
    return {name: to_proto(name, value) for name, value in values.items()}


def from_proto(message: kernel_pb2.ParameterValue) -> Parameter:
    """Returns the value in a message.

    Raises:
        MalformedProgramError: if it is no program in its canonical form.
    """
    field = message.WhichOneof("kind")
    if field is None:
        return None
    if field == "int_list":
        return tuple(message.int_list.values)
    if field == "program":
        return from_message(message.program)
    value: bool | int | float | str = getattr(message, field)
    return value


def _integer(name: str, value: object) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise _refusal(name, value) from None
    if isinstance(value, bool) or number not in _INT64:
        raise InvalidParameterError(f"parameter {name!r} is {value!r}; an integer fits 64 bits", field=name)
    return number


def _refusal(name: str, value: object) -> ParameterTypeError:
    return ParameterTypeError(
        f"parameter {name!r} is {type(value).__name__} {value!r}; "
        "give None, a bool, an integer, a float, a string or a sequence of integers",
        field=name,
    )
