"""The functions and methods of NumPy that programs call, and their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from shardcall.namespace import Namespace

_CREATION = ("array", "asarray", "arange", "zeros", "ones", "empty", "full", "eye", "identity")
_EXCLUDED = frozenset(
    (
        *("save", "savez", "savez_compressed", "savetxt", "array2string", "array_repr", "array_str"),
        *("busday_count", "busday_offset", "is_busday", "datetime_as_string", "isnat"),
        *("apply_along_axis", "apply_over_axes", "piecewise", "einsum_path", "can_cast", "result_type"),
        *("put", "place", "putmask", "copyto", "fill_diagonal", "put_along_axis"),  # statements
        *("empty_like",),  # whose elements are anything
        *("fromiter", "frombuffer", "fromfunction", "fromfile", "loadtxt", "genfromtxt"),
    )
)
_METHODS_EXCLUDED = frozenset(
    (
        *("dump", "dumps", "tofile", "tobytes", "tolist", "view", "getfield", "setfield", "setflags", "byteswap"),
        *("resize", "to_device", "item"),
        *("put", "fill", "sort", "partition"),  # statements
    )
)


@cache
def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Returns the parameters of a function or method of NumPy."""
    return [*inspect.signature(function).parameters.values()]


@cache
def functions_of_numpy(uses_xp: bool) -> tuple[list[str], list[str]]:
    """Returns the functions of NumPy that the service has, and those that it does not have."""
    xp: Any = Namespace(None)  # type: ignore[arg-type]  # to look at
    every, present = list[str](), list[str]()
    for prefix, module, part in (("", np, xp), ("linalg.", np.linalg, xp.linalg), ("fft.", np.fft, xp.fft)):
        for name in sorted(set(module.__all__) - _EXCLUDED):
            value = vars(module).get(name)
            creates = uses_xp and not prefix and name in _CREATION
            if isinstance(value, np.ufunc) or hasattr(value, "_implementation") or creates:
                every.append(prefix + name)
                if name in dir(type(part)):
                    present.append(prefix + name)
    return present, sorted({*every} - {*present})


@cache
def methods_of_numpy() -> list[str]:
    """Returns the methods of NumPy's arrays."""
    names = [name for name in dir(np.ndarray) if not name.startswith("_") and callable(getattr(np.ndarray, name))]
    return [name for name in names if name not in _METHODS_EXCLUDED]
