"""NumPy in a traced function: its functions that create arrays, and NumPy itself with these."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardcall._src.device_arrays.numpy_protocols import apply_function
from shardcall._src.traced.created_arrays import CreatedArray, CreatingTrace, applied, is_of_program, present

_CREATING = (
    *("zeros", "ones", "full", "arange", "eye", "identity", "linspace"),
    *("zeros_like", "ones_like", "full_like"),
)
_EMPTY = ("empty", "empty_like", "ndarray")
_CONVERTING = ("array", "asarray", "asanyarray", "ascontiguousarray", "copy")
NAMES = frozenset((*_CREATING, *_EMPTY, *_CONVERTING))
"""The functions of NumPy that make arrays which a traced function may write to."""
_FILLING = (np.full, np.full_like)  # with a value that NumPy would copy to this process


def creating_functions(find_trace: Callable[[], CreatingTrace | None]) -> dict[int, Any]:
    """Returns what NumPy and its functions that create arrays are in a traced function, by the ids of these.

    Args:
        find_trace: returns the trace that calls of this thread belong to; None while no function is traced.
    """
    by_name: dict[str, Any] = {name: _creating(find_trace, getattr(np, name)) for name in NAMES}
    by_name["ndarray"] = _ArrayType("ndarray", (np.ndarray,), {"_create": staticmethod(by_name["ndarray"])})
    return {id(np): _NumPy(by_name), **{id(getattr(np, name)): function for name, function in by_name.items()}}


class _ArrayType(type):
    """The class of ``numpy.ndarray`` in a traced function, which is called to create an array."""

    _create: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._create(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, np.ndarray)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, np.ndarray)


class _NumPy(types.ModuleType):
    """NumPy, with other functions that create arrays.

    Args:
        functions: these, by their names.
    """

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        super().__init__("numpy", np.__doc__)
        vars(self).update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(np, name, value)


def _creating(find_trace: Callable[[], CreatingTrace | None], function: Callable[..., Any]) -> Callable[..., Any]:
    name = function.__name__

    @functools.wraps(function, updated=())
    def create(*args: Any, **kwargs: Any) -> Any:
        trace = find_trace()
        if trace is None:
            return function(*args, **kwargs)
        if is_of_program((*args, *kwargs.values())):
            if function in _FILLING:
                return apply_function(trace.functions, function, present(args), kwargs)
            if name in _CONVERTING and args and not kwargs.keys() - {"dtype"}:
                array = _converted(trace.functions, *present(args), **kwargs)
                return array if name.startswith("as") else array.copy()
        result = applied(trace, function, args, kwargs)
        if name in _EMPTY and type(result) is CreatedArray:
            result.fill(0)  # or the program would have what was in the memory
        return result

    return create


def _converted(functions: Any, item: Any, dtype: Any = None) -> Any:
    """Returns an array of the program, or a list of such, as ``numpy.asarray``."""

    def stacked(item: Any) -> Any:
        return functions.stack([stacked(row) for row in item]) if type(item) in (tuple, list) else item

    return functions.asarray(stacked(item), dtype)
