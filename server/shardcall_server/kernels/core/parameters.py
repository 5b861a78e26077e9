"""Checks of the static parameters of a call, which may be of any type and size.

Every check returns the value of a parameter, or raises `CallError` if it is not allowed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.element_types import NAMED
from shardcall_core.layouts.layout import MAX_RANK
from shardcall_core.layouts.signature import ParameterValue, ParameterValues

OptionT = TypeVar("OptionT", bound=str)


def integer(parameters: ParameterValues, name: str) -> int:
    """Returns a parameter that must be an integer; True and False are not."""
    value = parameters[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(name, value, "an integer")
    return value


def integers(parameters: ParameterValues, name: str) -> tuple[int, ...]:
    """Returns a parameter that must be one integer, or a sequence of them."""
    value = parameters[name]
    if isinstance(value, tuple):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(name, value, "an integer or a sequence of integers")
    return (value,)


def number(parameters: ParameterValues, name: str) -> float:
    """Returns a parameter that must be a finite number; True and False are not. Integral values become integers."""
    value = parameters[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refusal(name, value, "a number")
    if not math.isfinite(value):
        raise CallError(Reason.INVALID_PARAMETER, f"{name}={value}; give a finite number", field=name)
    return int(value) if value == int(value) else value


def flag(parameters: ParameterValues, name: str) -> bool:
    """Returns a parameter that NumPy takes for a flag: True, False or an integer."""
    value = parameters[name]
    return bool(value) if isinstance(value, int) else boolean(parameters, name)


def boolean(parameters: ParameterValues, name: str) -> bool:
    """Returns a parameter that must be True or False."""
    value = parameters[name]
    if not isinstance(value, bool):
        raise _refusal(name, value, "True or False")
    return value


def text(parameters: ParameterValues, name: str) -> str:
    """Returns a parameter that must be a string."""
    value = parameters[name]
    if not isinstance(value, str):
        raise _refusal(name, value, "a string")
    return value


def one_of(parameters: ParameterValues, name: str, allowed: Sequence[OptionT]) -> OptionT:
    """Returns a parameter that must be one of a few strings."""
    value = text(parameters, name)
    for option in allowed:
        if option == value:
            return option
    options = " or ".join(map(repr, allowed))
    raise CallError(Reason.INVALID_PARAMETER, f"{name}={shorten(value)!r}; give {options}", field=name)


def shape(parameters: ParameterValues, name: str) -> tuple[int, ...]:
    """Returns a parameter that must be a shape: sizes of 0 or more, or one size for one axis."""
    value = parameters[name]
    sizes = value if isinstance(value, tuple) else (integer(parameters, name),)
    if len(sizes) > MAX_RANK or any(size < 0 for size in sizes):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"{name}={shorten(str(value))}; give at most {MAX_RANK} sizes, each 0 or more",
            field=name,
        )
    return sizes


def element_type(parameters: ParameterValues, name: str) -> np.dtype:
    """Returns a parameter that must be the name of an element type."""
    value = text(parameters, name)
    if value not in NAMED:
        raise CallError(
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            f"{name}={shorten(value)!r} is no element type; give one of: {', '.join(NAMED)}",
            field=name,
        )
    return NAMED[value]


def _refusal(name: str, value: ParameterValue, allowed: str) -> CallError:
    shown = repr(shorten(value)) if isinstance(value, str) else shorten(value)
    return CallError(
        Reason.PARAMETER_TYPE,
        f"{name}={shown} is of type {type(value).__name__}; {name} is {allowed}",
        field=name,
    )
