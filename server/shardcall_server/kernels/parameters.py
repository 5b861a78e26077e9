"""Checks of what parameters arrive as: of any kind and any size."""

from __future__ import annotations

from collections.abc import Mapping

from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels.kernel import ParameterValue


def integer(parameters: Mapping[str, ParameterValue], name: str) -> int:
    """A parameter that must be an integer; True and False are not.

    Raises:
        CallError: if it is anything else.
    """
    value = parameters[name]
    if isinstance(value, bool) or not isinstance(value, int):
        raise _refusal(name, value, "an integer")
    return value


def text(parameters: Mapping[str, ParameterValue], name: str) -> str:
    """A parameter that must be a string.

    Raises:
        CallError: if it is anything else.
    """
    value = parameters[name]
    if not isinstance(value, str):
        raise _refusal(name, value, "a string")
    return value


def _refusal(name: str, value: ParameterValue, allowed: str) -> CallError:
    given = repr(shorten(value)) if isinstance(value, str) else shorten(value)
    return CallError(
        Reason.INVALID_PARAMETER,
        f"{name}={given} is of type {type(value).__name__}; {name} is {allowed}",
        field=name,
    )
