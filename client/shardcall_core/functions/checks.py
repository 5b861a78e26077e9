"""Checks of the arguments of functions whose rules name the argument at fault."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.element_types import NAMED, DType
from shardcall_core.graphs.graph import Graph
from shardcall_core.layouts.layout import MAX_RANK, ArrayType


def invalid(field: str, value: object, allowed: str) -> CallError:
    """Returns the refusal of a parameter's value."""
    return CallError(Reason.INVALID_PARAMETER, f"{field}={shown(value)}; {allowed}", field=field)


def operand(field: str, message: str, reason: Reason = Reason.INVALID_OPERAND) -> CallError:
    """Returns the refusal of an operand."""
    return CallError(reason, message, field=field)


def shown(value: object) -> str:
    """Returns a value of a parameter as text, cut to a length that fits a message."""
    return repr(shorten(value)) if isinstance(value, str) else shorten(value)


def is_integer(value: object) -> bool:
    """Returns True for an integer that is not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def integer(parameters: Mapping[str, Any], name: str) -> int:
    """Returns a parameter that must be an integer; True and False are not."""
    value = parameters[name]
    if not is_integer(value):
        raise _wrong_type(name, value, "an integer")
    return int(value)


def integers(parameters: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """Returns a parameter that must be one integer or a tuple of integers."""
    value = parameters[name]
    if isinstance(value, tuple):
        return value
    if not is_integer(value):
        raise _wrong_type(name, value, "an integer or a sequence of integers")
    return (value,)


def flag(parameters: Mapping[str, Any], name: str) -> bool:
    """Returns a parameter that must be True, False or an integer, as NumPy takes flags."""
    value = parameters[name]
    if not isinstance(value, int):
        raise _wrong_type(name, value, "True or False")
    return bool(value)


def boolean(parameters: Mapping[str, Any], name: str) -> bool:
    """Returns a parameter that must be True or False."""
    value = parameters[name]
    if not isinstance(value, bool):
        raise _wrong_type(name, value, "True or False")
    return value


def number(parameters: Mapping[str, Any], name: str) -> float:
    """Returns a parameter that must be a finite number; True and False are not. Integral values become integers."""
    value = parameters[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, value, "a number")
    if not math.isfinite(value):
        raise invalid(name, value, "give a finite number")
    return int(value) if value == int(value) else value


def text(parameters: Mapping[str, Any], name: str) -> str:
    """Returns a parameter that must be a string."""
    value = parameters[name]
    if not isinstance(value, str):
        raise _wrong_type(name, value, "a string")
    return value


def program(parameters: Mapping[str, Any], name: str) -> Graph:
    """Returns a parameter that must be a program."""
    value = parameters[name]
    if not isinstance(value, Graph):
        raise _wrong_type(name, value, "a program")
    return value


def one_of(parameters: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str:
    """Returns a parameter that must be one of a few strings."""
    value = text(parameters, name)
    if value not in allowed:
        raise invalid(name, value, f"give {' or '.join(map(repr, allowed))}")
    return value


def sizes(parameters: Mapping[str, Any], name: str, *, minimum: int = 0) -> tuple[int, ...]:
    """Returns a parameter that must be a shape: one size or several, each at least ``minimum``."""
    result = integers(parameters, name)
    if len(result) > MAX_RANK or any(size < minimum for size in result):
        raise invalid(name, parameters[name], f"give at most {MAX_RANK} sizes, each {minimum} or more")
    return result


def element_type(parameters: Mapping[str, Any], name: str) -> DType:
    """Returns the element type that a parameter names."""
    value = parameters[name]
    if not isinstance(value, str):
        raise _wrong_type(name, value, "the name of an element type")
    if value not in NAMED:
        message = f"{name}={shown(value)} is no element type; give one of: {', '.join(NAMED)}"
        raise CallError(Reason.UNSUPPORTED_ELEMENT_TYPE, message, field=name)
    return NAMED[value]


def counted(name: str, value: int, ndim: int, of: str = "x") -> int:
    """Returns an axis counted from the first.

    Raises:
        CallError: if there is no such axis.
    """
    if not -ndim <= value < ndim:
        allowed = f"give an axis from {-ndim} to {ndim - 1}" if ndim else "a scalar has none"
        raise CallError(
            Reason.AXIS_OUT_OF_RANGE,
            f"{name}={shown(value)} and {of} has {ndim} axes; {allowed}",
            field=name,
            metadata={"axis": str(value), "ndim": str(ndim)},
        )
    return value % ndim


def axis(parameters: Mapping[str, Any], name: str, ndim: int, of: str = "x") -> int:
    """Returns the axis that a parameter names, counted from the first."""
    return counted(name, integer(parameters, name), ndim, of)


def axis_of(x: ArrayType, value: int, function: str) -> int:
    """Returns the axis of an array along which a function works, counted from the first.

    Raises:
        CallError: for an array without axes, or without that one.
    """
    if not x.ndim:
        raise operand("x", f"x is {x}, a scalar; {function} takes an array of one axis or more")
    return counted("axis", value, x.ndim)


def axes(parameters: Mapping[str, Any], name: str, ndim: int, of: str = "x") -> tuple[int, ...]:
    """Returns the axes that a parameter names, counted from the first; all of them for None.

    Raises:
        CallError: for an axis that there is not, and one that is named twice.
    """
    if parameters[name] is None:
        return tuple(range(ndim))
    result = tuple(counted(name, value, ndim, of) for value in integers(parameters, name))
    if len(set(result)) < len(result):
        raise invalid(name, parameters[name], f"it names an axis of {of} twice; name each once")
    return result


def ranked(field: str, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns a shape of no more axes than an array may have."""
    if len(shape) > MAX_RANK:
        message = f"the result has {len(shape)} axes; an array has at most {MAX_RANK}"
        raise CallError(Reason.INVALID_PARAMETER, message, field=field)
    return tuple(shape)


def _wrong_type(name: str, value: object, allowed: str) -> CallError:
    message = f"{name}={shown(value)} is of type {type(value).__name__}; {name} is {allowed}"
    return CallError(Reason.PARAMETER_TYPE, message, field=name)


def common_type(names: Sequence[str], operands: Sequence[ArrayType], field: str = "") -> DType:
    """Returns the common type of operands: that of ``numpy.result_type``, which depends on their order.

    Args:
        names: of the operands, in NumPy's order.
        operands: the operands' types, in the same order.
        field: the operand that the error names; the last one by default.

    Raises:
        CallError: if there is none, as for the two float8 types.
    """
    try:
        return np.result_type(*(item.dtype for item in operands))
    except TypeError:  # numpy.exceptions.DTypePromotionError
        described = " and ".join(f"{name} {item.dtype.name}" for name, item in zip(names, operands, strict=True))
        one = "one to the type of the other, or both" if len(names) == 2 else "all to one of these types, or"
        message = f"{described} have no common element type; convert {one} to float32"
        raise operand(field or names[-1], message, Reason.UNSUPPORTED_ELEMENT_TYPE) from None
