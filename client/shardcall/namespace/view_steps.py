"""The steps to views that functions of the table give."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from shardcall._src.calls.call_request import prepare
from shardcall._src.device_arrays.views import ViewStep, can_be_reshaped, is_view_of
from shardcall._src.programs.templates import types_by_table
from shardcall_core.functions.subscripts import of_one_operand
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.arrays import Array


def view_step(name: str, x: Any, others: Sequence[Any], arguments: Mapping[str, Any]) -> ViewStep | None:
    """Returns the step from an array to the result of a function; None where that is no view in NumPy.

    Args:
        name: the name of the function, one of `VIEWS`.
        x: its first operand, an array on the mesh.
        others: its other operands; None for one left out.
        arguments: its parameters.

    Raises:
        ShardcallError: for a call that the function does not accept.
    """
    if not arguments.keys() <= FUNCTIONS[name].defaults.keys():
        return None  # with a mesh and the like
    if name == "getitem" or (name == "flip" and not x.ndim):
        return None
    try:
        if name == "einsum":
            arguments = {**arguments, "subscripts": of_one_operand(arguments["subscripts"], x.shape)}
        if not is_view_of(name, x, others, arguments):
            return None
        plain = tuple((key, _plain(item)) for key, item in arguments.items())
    except (TypeError, ValueError):
        return None  # the call has several operands, or is refused with the reason
    step = _step(name, x.type, plain)
    if step is None or (step.type.dtype != x.dtype and name == "einsum"):
        return None
    return None if name == "reshape" and not can_be_reshaped(x, step.type.shape) else step


@lru_cache(maxsize=1024)
def _step(name: str, x: Array, arguments: tuple[tuple[str, Any], ...]) -> ViewStep | None:
    types = types_by_table(prepare(name, [x], dict(arguments)))
    return None if types is None else ViewStep(name, (), arguments, types[0])


def _plain(item: Any) -> Any:
    """Returns the value of a parameter that stays as it is: None, a text, an integer or a tuple of these."""
    if item is None or isinstance(item, str):
        return item
    return operator.index(item) if hasattr(item, "__index__") else tuple(map(operator.index, item))
