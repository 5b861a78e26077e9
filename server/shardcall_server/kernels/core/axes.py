"""Axes as callers name them: negative ones counted from the last, one or many."""

from __future__ import annotations

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.layouts.signature import ParameterValues
from shardcall_server.kernels.core.parameters import integer


def axis(name: str, value: int, ndim: int, operand: str = "x") -> int:
    """Returns an axis counted from the first.

    Raises:
        CallError: if the axis is out of range.
    """
    if not -ndim <= value < ndim:
        allowed = f"give an axis from {-ndim} to {ndim - 1}" if ndim else "a scalar has none"
        raise CallError(
            Reason.AXIS_OUT_OF_RANGE,
            f"{name}={value} and {operand} has {ndim} axes; {allowed}",
            field=name,
            metadata={"axis": str(value), "ndim": str(ndim)},
        )
    return value % ndim


def axis_of(x: ArrayType, value: int, kernel: str) -> int:
    """Returns the axis along which a kernel works, counted from the first.

    Raises:
        CallError: x is a scalar, or has no such axis.
    """
    if not x.ndim:
        raise CallError(
            Reason.INVALID_OPERAND, f"x is {x}, a scalar; {kernel} takes an array of one axis or more", field="x"
        )
    return axis("axis", value, x.ndim)


def axes(parameters: ParameterValues, name: str, ndim: int) -> tuple[int, ...]:
    """Returns the axes that a parameter names, counted from the first, in their order; all of them for None.

    Raises:
        CallError: for a value other than None, an integer or a tuple, an axis out of range, and an axis named twice.
    """
    value = parameters[name]
    if value is None:
        return tuple(range(ndim))
    values = value if isinstance(value, tuple) else (integer(parameters, name),)
    result = tuple(axis(name, item, ndim) for item in values)
    if len(set(result)) < len(result):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"{name}={shorten(str(values))} names an axis of x twice; name each once",
            field=name,
        )
    return result
