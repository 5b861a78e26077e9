"""Calls of flattened arrays, as calls of one axis after a reshape that exchanges rows between neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardcall._src.device_arrays.array_properties import ArrayProperties

# The kernels flatten arrays, too, but with all elements on every device.
_PARAMETERS = {
    "cumsum": {"dtype"},
    "cumprod": {"dtype"},
    "repeat": {"repeats"},
    "roll": {"shift"},
    "concatenate": set(),
}


def is_flattened(name: str, operands: Sequence[Any], arguments: Mapping[str, Any]) -> bool:
    """Returns True for a call of arrays on the mesh with several axes that flattens them, without other options."""
    if arguments.get("axis", 0) is not None or name not in _PARAMETERS:
        return False
    others = arguments.keys() - {"axis"}
    is_plain = others <= _PARAMETERS[name] and isinstance(arguments.get("shift", 0), int)
    return is_plain and all(isinstance(x, ArrayProperties) for x in operands) and any(x.ndim > 1 for x in operands)


def call_flattened(xp: Any, name: str, operands: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    """Runs a call for which `is_flattened` is true, by the functions of a namespace."""
    flat = [x if x.ndim == 1 else xp.reshape(x, -1) for x in operands]
    result = xp.call(name, *flat, **{**arguments, "axis": 0})
    return xp.reshape(result, operands[0].shape) if name == "roll" else result
