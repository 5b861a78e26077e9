"""The functions and methods of NumPy and SciPy that arrays on the mesh have, and their parameters."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from shardcall._src.device_arrays.numpy_protocols import ALIASES
from shardcall.namespace import Namespace
from shardcall.namespace.fft import FftNamespace
from shardcall.namespace.linalg import LinalgNamespace
from shardcall.namespace.ndimage import NdimageNamespace
from shardcall.namespace.special import SpecialNamespace

try:
    import scipy.ndimage
    import scipy.special
except ModuleNotFoundError:  # programs call none of its functions then
    scipy = None  # type: ignore[assignment]

CREATION = ("array", "asarray", "arange", "zeros", "ones", "empty", "full", "eye", "identity")
"""Functions that no array redirects; programs call those of `client.xp`."""

CHANGING = ("put", "place", "putmask", "copyto", "fill_diagonal", "put_along_axis")
"""Functions that change their first argument, and return nothing."""

ORACLES: Mapping[str, Any] = {"np": np, "numpy": np, "scipy": scipy}
"""The modules that programs name."""

_NUMPY: tuple[tuple[str, ModuleType, type], ...] = (
    ("", np, Namespace),
    ("linalg.", np.linalg, LinalgNamespace),
    ("fft.", np.fft, FftNamespace),
)
_EXCLUDED = frozenset(
    (
        *("save", "savez", "savez_compressed", "savetxt", "array2string", "array_repr", "array_str"),
        *("busday_count", "busday_offset", "is_busday", "datetime_as_string", "isnat"),
        *("einsum_path", "can_cast", "result_type"),
        *CHANGING,  # statements
        *("empty_like", "unique_values"),  # whose elements are anything, in any order
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
    """Returns the parameters of a function or method."""
    return [*inspect.signature(function).parameters.values()]


@cache
def redirected_functions() -> tuple[list[str], list[str]]:
    """Returns the functions of NumPy that arrays redirect: those that the service has, and those that it does not."""
    present, missing = list[str](), list[str]()
    for prefix, module, namespace in _NUMPY:
        for name in sorted(module.__all__):
            value = vars(module).get(name)
            if isinstance(value, np.ufunc) or hasattr(value, "_implementation"):
                is_present = name in dir(namespace) or (not prefix and name in ALIASES)
                (present if is_present else missing).append(prefix + name)
    return present, missing


@cache
def functions_of_numpy(uses_xp: bool) -> tuple[list[str], list[str]]:
    """Returns the functions of NumPy that programs call: those that the service has, and those that it does not."""
    present, missing = ([name for name in names if name not in _EXCLUDED] for names in redirected_functions())
    if uses_xp:
        present, missing = [n for n in present if n not in ALIASES], [*missing, *ALIASES]
        present += CREATION
    return sorted(present), sorted(missing)


@cache
def functions_of_scipy() -> dict[str, list[inspect.Parameter]]:
    """Returns the parameters here of the functions that SciPy has and NumPy does not, by names as ``special.erf``."""
    if scipy is None:
        return {}
    modules: tuple[tuple[str, Any, Any, type], ...] = (
        ("ndimage", scipy.ndimage, None, NdimageNamespace),
        ("special", scipy.special, np, Namespace),
        ("special", scipy.special, np, SpecialNamespace),
    )
    return {
        f"{prefix}.{name}": _positional(getattr(module, name), parameters_of(getattr(namespace, name))[1:])
        for prefix, module, of_numpy, namespace in modules
        for name in dir(namespace)
        if name in module.__all__ and not hasattr(of_numpy, name)
    }


def _positional(function: Any, parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Returns parameters; those of a ufunc have no names."""
    if not isinstance(function, np.ufunc):
        return parameters
    by_position = inspect.Parameter.POSITIONAL_ONLY
    return [p if p.kind is p.VAR_KEYWORD else p.replace(kind=by_position) for p in parameters]


@cache
def methods_of_numpy() -> list[str]:
    """Returns the methods of NumPy's arrays."""
    names = [name for name in dir(np.ndarray) if not name.startswith("_") and callable(getattr(np.ndarray, name))]
    return [name for name in names if name not in _METHODS_EXCLUDED]
