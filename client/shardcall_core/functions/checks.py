"""Checks of the arguments of functions whose rules name the argument at fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardcall_core.functions.element_types import NAMED, DType

MAX_RANK = 32
"""The most axes that an array may have."""

_MAX_SHOWN = 80


class RefusedArgumentError(ValueError):
    """An argument that a function does not accept.

    Attributes:
        reason: the name of the error reason, as in ``shardcall.v1.ErrorReason`` without its prefix.
        field: the operand or parameter at fault.
    """

    def __init__(self, reason: str, message: str, field: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.field = field


def invalid(field: str, value: object, allowed: str) -> RefusedArgumentError:
    """Returns the refusal of a parameter's value."""
    return RefusedArgumentError("INVALID_PARAMETER", f"{field}={shown(value)}; {allowed}", field)


def operand(field: str, message: str, reason: str = "INVALID_OPERAND") -> RefusedArgumentError:
    """Returns the refusal of an operand."""
    return RefusedArgumentError(reason, message, field)


def shown(value: object) -> str:
    """Returns a value as text, cut to a length that fits a message."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


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


def one_of(parameters: Mapping[str, Any], name: str, allowed: Sequence[str]) -> str:
    """Returns a parameter that must be one of a few strings."""
    value = parameters[name]
    if not isinstance(value, str):
        raise _wrong_type(name, value, "a string")
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
        raise RefusedArgumentError("UNSUPPORTED_ELEMENT_TYPE", message, name)
    return NAMED[value]


def counted(name: str, value: int, ndim: int, of: str = "x") -> int:
    """Returns an axis counted from the first.

    Raises:
        RefusedArgumentError: if there is no such axis.
    """
    if not -ndim <= value < ndim:
        allowed = f"give an axis from {-ndim} to {ndim - 1}" if ndim else "a scalar has none"
        message = f"{name}={shown(value)} and {of} has {ndim} axes; {allowed}"
        raise RefusedArgumentError("AXIS_OUT_OF_RANGE", message, name)
    return value % ndim


def axis(parameters: Mapping[str, Any], name: str, ndim: int, of: str = "x") -> int:
    """Returns the axis that a parameter names, counted from the first."""
    return counted(name, integer(parameters, name), ndim, of)


def axes(parameters: Mapping[str, Any], name: str, ndim: int, of: str = "x") -> tuple[int, ...]:
    """Returns the axes that a parameter names, counted from the first; all of them for None.

    Raises:
        RefusedArgumentError: for an axis that there is not, and one that is named twice.
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
        raise RefusedArgumentError("INVALID_PARAMETER", message, field)
    return tuple(shape)


def _wrong_type(name: str, value: object, allowed: str) -> RefusedArgumentError:
    message = f"{name}={shown(value)} is of type {type(value).__name__}; {name} is {allowed}"
    return RefusedArgumentError("PARAMETER_TYPE", message, name)
