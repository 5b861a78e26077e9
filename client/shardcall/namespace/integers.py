"""Arguments that are integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardcall_core.types.errors import ParameterTypeError, TracingError


def integer(name: str, value: Any, convert: Callable[[Any], int] = operator.index) -> int:
    """Returns an argument as an integer of Python.

    Args:
        name: its name.
        value: the argument.
        convert: returns the integer, or raises an error; ``int`` where NumPy takes other numbers, too.

    Raises:
        ParameterTypeError: for what is no integer.
        TracingError: for an element of an array of a traced function.
    """
    try:
        return convert(value)
    except TracingError:
        raise  # which says more
    except (TypeError, ValueError):
        shown = repr(value) if isinstance(value, str | float | complex | None) else f"of {type(value).__name__}"
        raise ParameterTypeError(f"{name} is {shown}; give an integer", field=name) from None


def integers(name: str, value: Any) -> tuple[int, ...]:
    """Returns an argument that is an integer or several, as integers of Python.

    Raises:
        ParameterTypeError: as `integer`.
    """
    return tuple(integer(name, item) for item in (value if np.iterable(value) else (value,)))


def check_numbers(name: str, array: Any) -> None:
    """Checks that an argument of integers holds numbers, which are converted later.

    Raises:
        ParameterTypeError: for texts, times and objects.
    """
    if array.dtype.kind in "OSUmM":
        raise ParameterTypeError(f"{name} is of {array.dtype.name}; give integers", field=name)
