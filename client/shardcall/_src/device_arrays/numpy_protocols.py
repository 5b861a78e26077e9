"""NumPy's functions and ufuncs on arrays on the mesh: how `np.f(h)` finds one, and the refusal of others."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

import numpy as np

from shardcall._src.device_arrays import ufunc_methods
from shardcall._src.device_arrays.change_targets import target_of
from shardcall._src.device_arrays.missing_attributes import check_row_major, unsupported
from shardcall._src.device_arrays.numpy_metadata import DESCRIBING
from shardcall._src.device_arrays.write_locks import writing_to
from shardcall_core.element_types import DType
from shardcall_core.functions.elementwise import COMPARISONS

ALIASES: Mapping[str, str] = {
    "amax": "max",
    "amin": "min",
    "around": "round",
    "deg2rad": "radians",
    "rad2deg": "degrees",
    "fabs": "absolute",
    "row_stack": "vstack",
}
"""The names of functions of NumPy that have other names here."""

CHANGING = ("copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis")
"""The functions of NumPy that write to their first argument."""
_TO_ANY_TYPE = frozenset(
    (
        *("sum", "prod", "max", "amax", "min", "amin", "mean", "median", "var", "cumsum", "cumprod", "trace"),
        *("nansum", "nanprod", "nanmax", "nanmin", "nancumsum", "nancumprod", "cumulative_sum", "cumulative_prod"),
        "choose",
    )
)
"""Functions whose results NumPy converts to the type of ``out``, whatever is lost."""
_TO_LARGER = frozenset(("percentile", "quantile", "nanpercentile", "nanquantile", "nanmedian"))
"""Functions whose results NumPy broadcasts to the shape of ``out``."""
_TAKING: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("take", "compress"), np.take),
    **dict.fromkeys(("argmax", "argmin"), lambda x, _, out: np.argmax(x[None], 1, out)),
}
"""A call of each function with a rule of its own for the type of ``out``, which versions of NumPy have changed."""

_AXES_IN_LISTS = frozenset(
    (
        *("average", "flip", "gradient", "linspace", "logspace", "median", "nanmedian", "nanpercentile"),
        *("nanquantile", "percentile", "quantile", "roll", "size", "trim_zeros", "unstack"),
    )
)
"""Functions whose ``axis`` may be a list."""
_NO_VALUE = inspect.signature(np.sum).parameters["keepdims"].default
_RENAMED = {"a_min": "min", "a_max": "max"}  # the bounds of clip
_WITHOUT_EFFECT = ("subok", "overwrite_input", "optimize")
_ALGORITHM = ("kind", "order", "stable")  # of sorts
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "out": (None,),
    "dtype": (None,),
    "where": (True,),
    "casting": ("same_kind", "unsafe"),  # the types of results allow no conversion that "unsafe" alone would
}
"""The values of keywords that functions of NumPy take and pass on."""

_ON_ONE_ELEMENT: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(("sort", "argsort"), ([0],)),
    **dict.fromkeys(("partition", "argpartition"), ([0], 0)),
    "isin": ([0], [0]),
}
"""Functions that differ only in their algorithm, and operands with which NumPy checks the names of algorithms."""


def apply_ufunc(functions: Any, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Runs a ufunc, or one of its methods, with arguments as of ``__array_ufunc__``.

    Args:
        functions: the namespace with the functions.
        method: ``"__call__"``, or the name of the method.

    Raises:
        TypeError: for ufuncs and keywords that arrays on the mesh do not have.
    """
    if method == "at":
        return ufunc_methods.at(functions, ufunc, *inputs)
    if method == "outer":
        return apply_ufunc(functions, ufunc, "__call__", ufunc_methods.outer_operands(ufunc, *inputs), kwargs)
    with writing_to(kwargs.get("out", ())):
        return _run_ufunc(functions, ufunc, method, inputs, kwargs)


def _run_ufunc(functions: Any, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = _full_name(ufunc)
    out, casting, where = kwargs.pop("out", ()), kwargs.pop("casting", "same_kind"), True
    _check_targets(out)
    if method == "__call__":
        dtype, where = kwargs.pop("dtype", None), kwargs.pop("where", True)
        if dtype is not None or casting != "same_kind" or ufunc is np.fabs:  # which is absolute of inexact types alone
            inputs = _converted(functions, ufunc, inputs, None if dtype is None else np.dtype(dtype), casting)
        if where is not True:
            where = _mask(where)
            inputs = _without_refused(functions, ufunc, inputs, where)
            inputs = [functions.selected(where, x) for x in inputs]
        run = _function(functions, name.partition(".")[2], name)
        results = run(*inputs, **_options(name, run, kwargs))
    else:
        run, casting = getattr(ufunc_methods, method), "unsafe"
        _check_axis(f"{name}.{method}", kwargs.get("axis"))
        if any(target is not None for target in out) and kwargs.get("dtype") is None:
            kwargs["dtype"] = ufunc_methods.type_for(ufunc, inputs[0], out[0])
        results = run(functions, ufunc, *inputs, **_options(f"{name}.{method}", run, kwargs))
    if any(target is not None for target in out):
        if method != "__call__" and np.shape(out[0]) != results.shape:
            raise ValueError(
                f"out is of shape {np.shape(out[0])}, and the result of {name}.{method} of {results.shape}"
            )
        if ufunc.signature is not None:
            core = ufunc.signature.partition("->")[2].count(",") + (not ufunc.signature.endswith("()"))
            count = sum(np.ndim(x) > 1 for x in inputs) if ufunc is np.matmul else core
            _check_matrices(name, results, out[0], count)
            extra = max(0, results.ndim - np.ndim(out[0]))
            if set(results.shape[:extra]) == {1}:  # axes that NumPy leaves out of the results of functions of matrices
                results = functions.reshape(results, results.shape[extra:])
        return _assign(functions, results, out, casting, where)
    return results if where is True else _masked(functions, results, where)


def apply_function(functions: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Runs a function of NumPy, with arguments as of ``__array_function__``.

    Args:
        functions: the namespace with the functions.

    Raises:
        TypeError: for functions and keywords that arrays on the mesh do not have.
    """
    name = f"{function.__module__}.{function.__name__}"
    if function.__name__ in CHANGING and isinstance(args[0] if args else next(iter(kwargs.values())), np.ndarray):
        return function(*map(_in_this_process, args), **{key: _in_this_process(x) for key, x in kwargs.items()})
    if function in DESCRIBING and (described := DESCRIBING[function](*args, **kwargs)) is not NotImplemented:
        return described
    run = _function(functions, name.removeprefix("numpy."), name)
    if function is np.clip:
        _check_bounds(args, kwargs)
    positional, named = _arguments(function, args, kwargs, run)
    _check_axes(name, positional, named)
    out = named.pop("out", None)
    if out is not None and not isinstance(out, tuple):
        out = (out,)
    _check_targets(out or ())
    if out and named.get("dtype") is not None and function.__name__ in ("concatenate", "stack"):
        raise TypeError(f"{name} takes out or dtype, and got both")
    if out and "dtype" in _parameters(run)[0] and named.get("dtype") is None:
        named["dtype"] = _type_of_sums(function.__name__, positional[0], out[0])
    casting = "unsafe" if function.__name__ in _TO_ANY_TYPE else named.get("casting", "same_kind")
    with writing_to(out or ()):
        results = run(*positional, **_options(name, run, named))
        return results if out is None else _copied(functions, function, positional, results, out, casting)


def _copied(
    functions: Any,
    function: Callable[..., Any],
    operands: Sequence[Any],
    results: Any,
    out: Sequence[Any],
    casting: Any,
) -> Any:
    """Copies the results of a function to what was given as ``out``, as `_assign`, after the checks of NumPy."""
    name = f"{function.__module__}.{function.__name__}"
    for result, target in zip(results if isinstance(results, tuple) else (results,), out, strict=True):
        if target is None or (function is np.dot and not all(map(np.ndim, operands))):  # which is multiply
            continue
        if np.shape(target) != result.shape and function.__name__ not in _TO_LARGER:
            raise ValueError(f"out is of shape {target.shape}, and the result of {name} of {result.shape}")
        if function.__name__ in _TAKING:
            _check_taking(_TAKING[function.__name__], target, result)
            casting = "unsafe"
        if function is np.dot and (target.dtype != result.dtype or not target.flags.c_contiguous):
            raise ValueError(f"out of numpy.dot is to be of {result.dtype}, and in row-major order without gaps")
    return _assign(functions, results, out, casting)


def _full_name(ufunc: np.ufunc) -> str:
    """Returns the name of a ufunc with its module; those of SciPy do not have theirs."""
    name = ufunc.__name__
    is_special = getattr(sys.modules.get("scipy.special"), name, None) is ufunc and getattr(np, name, None) is not ufunc
    return f"scipy.special.{name}" if is_special else f"numpy.{name}"


def _function(functions: Any, name: str, shown: str) -> Callable[..., Any]:
    """Returns the function of a name such as ``linalg.inv``; ``shown`` is its name in a refusal."""
    *parents, name = name.split(".")
    namespace, names = functions, functions.function_names
    for parent in parents:
        namespace = getattr(namespace, parent, None) if parent in names else None
        names = [name for name in dir(namespace) if not name.startswith("_")]
    name = ALIASES.get(name, name)
    if name not in names:
        raise unsupported(shown, get_close_matches(name, names, n=1, cutoff=0.7))
    return getattr(namespace, name)  # type: ignore[no-any-return]


def _arguments(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], run: Callable[..., Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the arguments of a call: operands by position, others by their names.

    Operands are what NumPy requires, and come first here as there. Arguments that have NumPy's default are left out if
    there are none of their name here.
    """
    signature = _signature(function)
    if signature is None:
        return [*args], {**kwargs}
    accepted, only_by_position = _parameters(run)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        parameter = signature.parameters[name]
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional += value
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        elif parameter.default is parameter.empty or name in only_by_position[len(positional) :][:1]:
            positional.append(value)
        elif (renamed := _RENAMED.get(name, name)) in accepted or not _is_default(value, parameter.default):
            named[renamed] = value
    return positional, named


def _check_bounds(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Checks that ``numpy.clip`` gets bounds under one pair of names.

    Raises:
        ValueError: for bounds by both.
    """
    has_bounds = len(args) > 1 or not {"a_min", "a_max"}.isdisjoint(kwargs)
    if has_bounds and not {"min", "max"}.isdisjoint(kwargs):
        raise ValueError("numpy.clip got a_min and a_max, and min or max; give either")


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _parameters(run: Callable[..., Any]) -> tuple[frozenset[str], tuple[str, ...]]:
    return _parameter_names(getattr(run, "__func__", run), is_method=hasattr(run, "__func__"))


@lru_cache(maxsize=512)
def _parameter_names(run: Callable[..., Any], *, is_method: bool) -> tuple[frozenset[str], tuple[str, ...]]:
    """Returns the parameters of a function that can be passed by name, and those that cannot."""
    parameters = [*inspect.signature(run).parameters.values()][is_method:]  # without that of the namespace
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    only_by_position = tuple(
        parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.POSITIONAL_ONLY
    )
    return frozenset(parameter.name for parameter in parameters if parameter.kind in by_name), only_by_position


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
    named = {name: value for name, value in named.items() if value is not _NO_VALUE and name not in _WITHOUT_EFFECT}
    if operands := _ON_ONE_ELEMENT.get(shown.removeprefix("numpy.")):
        algorithm = {name: named[name] for name in (*_ALGORITHM, "descending") if name in named}
        getattr(np, shown.removeprefix("numpy."))(*operands, **algorithm)
        named = {name: value for name, value in named.items() if name not in _ALGORITHM}
    accepted, _ = _parameters(run)
    if "order" in named and "order" not in accepted:
        check_row_major(named.pop("order"))
    for name, value in list(named.items()):
        is_neutral = any(_is_default(value, default) for default in _DEFAULTS.get(name, ()))
        if is_neutral and (name != "casting" or name not in accepted):
            del named[name]
        elif name not in accepted:
            raise unsupported(f"{shown} with {name}=")
    return named


def _type_of_sums(name: str, x: Any, out: Any) -> DType | None:
    """Returns the type in which NumPy adds or multiplies the elements of an array for a target; None for its own."""
    dtype = getattr(x, "dtype", None)
    is_sum = name == "trace" or "sum" in name or "prod" in name
    if not isinstance(dtype, np.dtype) or not (is_sum or dtype.kind in "fc") or not hasattr(out, "dtype"):
        return None
    return ufunc_methods.type_for(np.multiply if "prod" in name else np.add, x, out)


def _converted(functions: Any, ufunc: np.ufunc, inputs: Sequence[Any], dtype: DType | None, casting: Any) -> list[Any]:
    """Returns the inputs of a ufunc in the types from which NumPy computes results of a type.

    Raises:
        TypeError: if the ufunc has no such results, or the conversion is none that ``casting`` allows.
        OverflowError: if a type does not hold a number of Python.
    """

    def is_remote(item: Any) -> bool:
        return hasattr(type(item), "__remote_array__")

    def type_of_input(item: Any) -> Any:
        number = getattr(item, "python_type", type(item))
        if number in (bool, int, float, complex):
            # resolve_dtypes takes no bool, and that of NumPy 2.4 ends the process for classes of numbers and "equiv"
            return np.dtype(number) if number is bool or casting == "equiv" else number
        return getattr(item, "dtype", None) or np.asarray(item).dtype

    types = *map(type_of_input, inputs), *[None] * ufunc.nout
    signature = (None,) * ufunc.nin + (dtype,) * ufunc.nout
    input_types = ufunc.resolve_dtypes(types, signature=signature, casting=casting)
    if dtype is None and ufunc.__name__ in COMPARISONS:  # which take numbers of Python beyond the type, too
        return [*inputs]
    return [
        (functions if is_remote(x) else np).asarray(x, input_type)
        for x, input_type in zip(inputs, input_types, strict=False)
    ]


def _assign(functions: Any, results: Any, out: Sequence[Any], casting: Any = "same_kind", where: Any = True) -> Any:
    """Copies results to other arrays, and returns these; a result for which there is None stays."""
    several = results if isinstance(results, tuple) else (results,)
    outputs = []
    for result, target in zip(several, out, strict=True):
        if target is None:
            outputs.append(result if where is True else _masked(functions, result, where))
            continue
        if result.ndim > np.ndim(target):
            raise ValueError(
                f"out is of shape {target.shape}, to which the result of {result.shape} does not broadcast"
            )
        if isinstance(target, np.ndarray):
            np.copyto(target, _in_this_process(result), casting=casting, where=_in_this_process(where))
        else:
            target_of(target, "out=")
            if not np.can_cast(result.dtype, target.dtype, casting):
                raise TypeError(
                    f"the result is of {result.dtype.name} and out of {target.dtype.name}, which the rule {casting!r} "
                    "does not allow"
                )
            functions.copyto(target, result, "unsafe", where)
        outputs.append(target)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def _check_targets(out: Sequence[Any]) -> None:
    """Checks that results can be copied to what was given as ``out``.

    Raises:
        TypeError: for what is no array.
    """
    for target in out:
        if not (target is None or isinstance(target, np.ndarray) or ufunc_methods.is_remote(target)):
            raise TypeError(f"out is of the type {type(target).__name__}; give an array of NumPy or on the mesh")


def _check_axes(name: str, operands: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Checks the axes of a call of a function.

    Raises:
        TypeError: for a list, which NumPy does not take there.
        ValueError: for axes without elements that are reduced with ``initial=None``.
    """
    axis = named.get("axis")
    if name.rpartition(".")[2] not in _AXES_IN_LISTS:
        _check_axis(name, axis)
    if named.get("initial", 0) is None:
        ufunc_methods.check_elements(name, np.shape(operands[0]), axis)


def _check_axis(name: str, axis: Any) -> None:
    if isinstance(axis, list):
        raise TypeError(f"axis of {name} is the list {axis}; give an integer, or a tuple of integers")


def _check_taking(call: Callable[..., Any], target: Any, result: Any) -> None:
    """Checks that a function of `_TAKING` converts its result to the type of a target, with the warnings of NumPy.

    Raises:
        TypeError: if it does not.
    """
    try:
        call(np.zeros(1, result.dtype), [0], out=np.zeros(1, target.dtype))
    except TypeError:
        raise TypeError(
            f"out is of {target.dtype.name} and the result of {result.dtype.name}, between which NumPy does not "
            f"convert here; give an out of {result.dtype.name}"
        ) from None


def _check_matrices(name: str, result: Any, out: Any, count: int) -> None:
    """Checks the last axes of a target, to which the matrices or vectors of a result do not broadcast.

    Raises:
        ValueError: for other sizes.
    """
    sizes = result.shape[result.ndim - count :]
    if np.shape(out)[max(np.ndim(out) - count, 0) :] != sizes:
        raise ValueError(f"out is of shape {np.shape(out)}, and the last axes of the result of {name} of {sizes}")


def _mask(where: Any) -> Any:
    """Returns where a ufunc computes, as an array of bool."""
    if hasattr(where, "python_type"):  # a number of a traced function
        where = where.__remote_array__()
    mask = where if ufunc_methods.is_remote(where) else np.asarray(where)
    if mask.dtype == np.bool_:
        return mask
    if ufunc_methods.is_remote(where) or isinstance(where, np.ndarray):
        raise TypeError(f"where is of {mask.dtype.name}; give a mask of bool")
    return mask.astype(np.bool_)


def _without_refused(functions: Any, ufunc: np.ufunc, inputs: Sequence[Any], where: Any) -> Sequence[Any]:
    """Returns the inputs of a ufunc, without the negative exponents of integers where it does not compute."""
    if ufunc is not np.power or getattr(inputs[1], "dtype", np.asarray(1.0).dtype).kind not in "iu":
        return inputs
    return inputs[0], functions.where(where, inputs[1], np.ones((), inputs[1].dtype))


def _masked(functions: Any, results: Any, where: Any) -> Any:
    """Returns results with 0 where a ufunc does not compute, whose elements NumPy leaves as they are in memory."""
    if isinstance(results, tuple):
        return tuple(_masked(functions, result, where) for result in results)
    return functions.where(where, results, np.zeros((), results.dtype))


def _in_this_process(value: Any) -> Any:
    if not ufunc_methods.is_remote(value):
        return value
    array = value.__remote_array__()
    if array._is_traced:
        array._refuse_copy()
    return array.to_numpy()
