"""NumPy's protocols for arrays on the mesh: its functions and ufuncs run there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from shardcall._src.functions.element_types import DType

REDUCTIONS: Mapping[str, str] = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
"""The function that reduces by each ufunc."""

ALIASES: Mapping[str, str] = {
    "amax": "max",
    "amin": "min",
    "around": "round",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "fabs": "absolute",
}
"""The names of functions of NumPy that have other names here."""

_ASSIGNING = ("copyto", "put", "place", "putmask", "fill_diagonal")
_NO_VALUE = inspect.signature(np.sum).parameters["keepdims"].default
_SORTING = ("numpy.sort", "numpy.argsort", "numpy.partition", "numpy.argpartition")
"""The functions whose keyword ``order`` names fields, which no array on the mesh has."""

_VALUES: Mapping[str, tuple[str, ...]] = {
    "order": ("C", "A", "K", "c", "a", "k"),
    "kind": ("quicksort", "mergesort", "heapsort", "stable"),
    "casting": ("no", "equiv", "safe", "same_kind", "unsafe"),
}
_KINDS: Mapping[str, tuple[str, ...]] = {
    "numpy.partition": ("introselect",),
    "numpy.argpartition": ("introselect",),
    "numpy.isin": ("sort", "table"),
}
"""The values of the keyword ``kind`` of functions that do not sort."""

_IGNORED = ("order", "subok", "casting", "kind", "optimize", "stable", "copy")


def apply_ufunc(functions: Any, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs a ufunc, or one of its methods, with arguments as of ``__array_ufunc__``.

    Args:
        functions: the namespace with the functions.
        method: ``"__call__"``, or the name of the method.

    Raises:
        TypeError: for ufuncs and keywords that arrays on the mesh do not have.
    """
    out = kwargs.pop("out", ())
    _check_keywords(f"numpy.{ufunc.__name__}", kwargs)
    if method == "__call__":
        if kwargs.pop("where", True) is not True:
            raise _unsupported(f"numpy.{ufunc.__name__} with where=")
        dtype, casting = kwargs.pop("dtype", None), kwargs.get("casting")
        if dtype is not None or casting is not None:
            wanted = None if dtype is None else np.dtype(dtype)
            inputs = _converted(functions, ufunc, inputs, wanted, casting or "same_kind")
        run = _function(functions, ufunc.__name__, f"numpy.{ufunc.__name__}")
    elif method == "reduce" and ufunc.__name__ in REDUCTIONS:
        run = getattr(functions, REDUCTIONS[ufunc.__name__])
        kwargs.setdefault("axis", 0)
    elif method == "accumulate" and ufunc is np.add:
        run = functions.cumsum
        kwargs.setdefault("axis", 0)
    elif method == "at":
        raise _assigning(f"numpy.{ufunc.__name__}.at")
    else:
        raise _unsupported(f"numpy.{ufunc.__name__}.{method}")
    results = run(*inputs, **_options(f"numpy.{ufunc.__name__}", run, kwargs))
    return _assign(results, out) if any(each is not None for each in out) else results


def apply_function(functions: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Runs a function of NumPy, with arguments as of ``__array_function__``.

    Args:
        functions: the namespace with the functions.

    Raises:
        TypeError: for functions and keywords that arrays on the mesh do not have.
    """
    name = f"{function.__module__}.{function.__name__}"
    if function.__name__ in _ASSIGNING:
        if function is np.copyto and isinstance(args[0], np.ndarray) and not kwargs and len(args) == 2:
            return _assign(args[1], args[:1])
        raise _assigning(name)
    run = _function(functions, name.removeprefix("numpy."), name)
    positional, named = _arguments(function, args, kwargs, _parameters(run))
    out = named.pop("out", None)
    _check_keywords(name, named)
    results = run(*positional, **_options(name, run, named))
    return results if out is None else _assign(results, (out,))


def _check_keywords(name: str, named: Mapping[str, Any]) -> None:
    """Refuses values of keywords that are ignored here and that NumPy refuses, and column-major order.

    Raises:
        TypeError: for column-major order, and values of another class.
        ValueError: for other values.
    """
    for keyword, values in _VALUES.items():
        value = named.get(keyword)
        if value is None:
            continue
        allowed = _KINDS.get(name, values) if keyword == "kind" else values
        if not isinstance(value, str):
            raise TypeError(f"{name}: {keyword}={value!r}; give a string")
        if keyword == "order" and value.upper() == "F":
            raise _unsupported(f"{name} with order='F'")
        if value not in allowed or (keyword == "order" and name in _SORTING):
            raise ValueError(f"{name}: {keyword}={value!r} is not one of: {', '.join(allowed)}")


def _function(functions: Any, name: str, shown: str) -> Callable[..., Any]:
    part: Any = functions
    for each in name.split("."):
        name = ALIASES.get(each, each)
        part = getattr(part, name, None) if part is not functions or name in functions.function_names else None
    if part is None:
        raise _unsupported(shown)
    return part  # type: ignore[no-any-return]


def _arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], parameters: frozenset[str]
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of a call: by name those that have the same name here, the others by position.

    Arguments that there are not here are left out if they have NumPy's default.
    """
    signature = _signature(function)
    if signature is None:
        return [*args], {**kwargs}
    by_name = {"out", *_IGNORED, *parameters} - {next(iter(signature.parameters))}
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for index, (name, value) in enumerate(signature.bind(*args, **kwargs).arguments.items()):
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif index == len(positional) and kind is not inspect.Parameter.KEYWORD_ONLY and name not in by_name:
            positional.append(value)
        elif name in by_name or value is not signature.parameters[name].default:
            named[name] = value
    return positional, named


def _parameters(run: Callable[..., Any]) -> frozenset[str]:
    return _parameter_names(getattr(run, "__func__", run))


@lru_cache(maxsize=512)
def _parameter_names(run: Callable[..., Any]) -> frozenset[str]:
    parameters = inspect.signature(run).parameters.values()
    return frozenset(each.name for each in parameters if each.kind is not inspect.Parameter.POSITIONAL_ONLY)


@lru_cache(maxsize=256)
def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except ValueError:  # of a function written in C
        return None


def _options(shown: str, run: Callable[..., Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Returns keywords without those that say how NumPy computes, and without those that have no value.

    Args:
        shown: the name of NumPy's function.
        run: the function that is to get the keywords.
        named: the keywords.

    Raises:
        TypeError: for a keyword that the function does not have.
    """
    options = {
        name: value
        for name, value in named.items()
        if (name not in _IGNORED or name in _parameters(run))
        and value is not _NO_VALUE
        and not (name == "dtype" and value is None)
    }
    for name in options.keys() - _parameters(run):
        raise _unsupported(f"{shown} with {name}=")
    return options


def _converted(functions: Any, ufunc: np.ufunc, inputs: Sequence[Any], dtype: DType | None, casting: Any) -> list[Any]:
    """Returns the inputs of a ufunc in the types from which NumPy computes results of a type.

    Raises:
        TypeError: if the ufunc has no such results, or the conversion is none that ``casting`` allows.
        OverflowError: if a type does not hold a number of Python.
    """

    def is_remote(item: Any) -> bool:
        return hasattr(type(item), "__remote_array__")

    def kind_of(item: Any) -> Any:
        number = getattr(item, "python_type", type(item))
        return number if number in (int, float, complex) else getattr(item, "dtype", None) or np.asarray(item).dtype

    kinds = *map(kind_of, inputs), *[None] * ufunc.nout
    signature = (None,) * ufunc.nin + (dtype,) * ufunc.nout
    types = ufunc.resolve_dtypes(kinds, signature=signature, casting=casting)
    return [(functions if is_remote(x) else np).asarray(x, kind) for x, kind in zip(inputs, types, strict=False)]


def _assign(results: Any, out: Sequence[Any]) -> Any:
    """Copies results to arrays of this process, and returns these."""
    several = results if isinstance(results, tuple) else (results,)
    for result, target in zip(several, out, strict=True):
        if not isinstance(target, np.ndarray):
            raise TypeError(
                f"out is {type(target).__name__}, and arrays on the mesh do not change; use the array that the "
                "function returns"
            )
        np.copyto(target, result.get(), casting="same_kind")
    return out[0] if len(out) == 1 else tuple(out)


def _assigning(what: str) -> TypeError:
    return TypeError(
        f"{what} changes an array, and arrays on the mesh do not change; assign to elements, array[key] = values, "
        "which makes the object stand for a new array, or use array.at[key], which returns one"
    )


def _unsupported(what: str) -> TypeError:
    return TypeError(
        f"{what} does not run on the mesh; to run it in this process, pass array.get() in place of the array, not in a "
        "traced function"
    )
