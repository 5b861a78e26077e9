"""NumPy's rules for the element type of a function's results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shardcall_core.call_error import Reason
from shardcall_core.element_types import NAMED, DType, canonical, is_float
from shardcall_core.functions import checks
from shardcall_core.functions.shape_rules import Parameters

DTypes: TypeAlias = Sequence[DType | None]
"""The element types of a call's operands; None for one left out."""

TypeRule: TypeAlias = Callable[[DTypes, Parameters], DType]
"""Returns the element type of every result of a call; raises TypeError where NumPy has none."""

AVERAGES = ("mean", "var", "std")
"""The reductions that divide: their results are never integers."""


class Loop(NamedTuple):
    """The element types of an inner loop of an elementwise function.

    Attributes:
        operands: the type that each operand is converted to; None for one left out.
        result: the type of the result.
    """

    operands: tuple[DType | None, ...]
    result: DType


def loop(name: str, *dtypes: DType | None) -> Loop:
    """Returns the inner loop that NumPy chooses for an elementwise function.

    Raises:
        TypeError: if NumPy has none.
    """
    if rule := _LOOPS.get(name):
        return rule(*dtypes)
    ufunc: np.ufunc = getattr(np, name)
    return _loop(*ufunc.resolve_dtypes((*dtypes, None)))


def _loop(*dtypes: DType) -> Loop:
    *operands, result = map(canonical, dtypes)
    return Loop(tuple(operands), result)


def _part(x: DType) -> Loop:
    return _loop(x, np.empty((), x).real.dtype)


def _angle(x: DType) -> Loop:
    result = np.angle(np.empty(0, x)).dtype
    return _loop(np.result_type(x, result), result)


def _where(_condition: DType, x: DType, y: DType) -> Loop:
    dtype = np.result_type(x, y)
    return _loop(np.dtype(bool), dtype, dtype, dtype)


def _clip(x: DType, low: DType | None, high: DType | None) -> Loop:
    if low is None and high is None:
        return Loop((x, None, None), x)
    arrays: list[Any] = [None if dtype is None else np.empty(0, dtype) for dtype in (x, low, high)]
    dtype = np.clip(*arrays).dtype
    return Loop(tuple(None if array is None else dtype for array in arrays), dtype)


_LOOPS: Mapping[str, Callable[..., Loop]] = MappingProxyType(
    {"real": _part, "imag": _part, "angle": _angle, "where": _where, "clip": _clip}
)  # those that are no ufuncs


def elementwise(name: str) -> TypeRule:
    """Returns the rule of NumPy's elementwise function of a name."""
    return lambda dtypes, _: loop(name, *dtypes).result


def reduction(name: str) -> TypeRule:
    """Returns the rule of NumPy's reduction of a name."""

    def rule(dtypes: DTypes, parameters: Parameters) -> DType:
        x, requested = _present(dtypes)[0], _requested(parameters)
        if requested is not None and x.kind == "c" and requested.kind != "c":
            raise TypeError(f"{name} in {requested.name} loses the imaginary part of {x.name}")
        keywords = {} if requested is None else {"dtype": requested}
        result = canonical(getattr(np, name)(np.ones(1, x), **keywords).dtype)
        if name in AVERAGES and not (is_float(result) or result.kind == "c"):
            raise TypeError(f"{name} of {x.name} in {result.name} is not a floating-point number")
        return result

    return rule


def as_operand(index: int) -> TypeRule:
    """Returns the rule of functions whose results have the type of an operand."""
    return lambda dtypes, _: _present(dtypes[index : index + 1])[0]


def common(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type that all operands have in common, as ``numpy.result_type``, which depends on their order."""
    return np.result_type(*_present(dtypes))


def derivative(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of a derivative of x: x's own if it is floating-point or complex, else float64."""
    x = _present(dtypes)[0]
    return x if is_float(x) or x.kind == "c" else np.dtype(np.float64)


def cumsum(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of ``numpy.cumsum``."""
    return _requested(parameters) or np.cumsum(np.empty(0, dtypes[0])).dtype


def requested(_: DTypes, parameters: Parameters) -> DType:
    """Returns the type that the parameter ``dtype`` names."""
    return NAMED[parameters["dtype"]]


def astype(_: DTypes, parameters: Parameters) -> DType:
    """Returns the type that the parameter ``dtype`` names, which it checks."""
    return checks.element_type(parameters, "dtype")


def joined(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type that all arrays have in common.

    Raises:
        CallError: if there is none.
    """
    try:
        return common(dtypes, parameters)
    except TypeError:
        names = ", ".join(dtype.name for dtype in _present(dtypes))
        message = f"the arrays, of {names}, have no common element type; convert them to one"
        raise checks.operand("arrays[1]", message, Reason.UNSUPPORTED_ELEMENT_TYPE) from None


def getitem(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of x, for starts of integers."""
    x, starts = _present(dtypes)
    if starts.kind not in "iu":
        message = f"starts is of {starts.name}; give integers"
        raise checks.operand("starts", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return x


def setitem(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of x, for values that it can have and starts of integers."""
    x, values, starts = _present(dtypes)
    if values.kind == "c" and x.kind != "c":
        message = f"values is of {values.name} and x of {x.name}; give real numbers"
        raise checks.operand("values", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return getitem((x, starts), {})


def indices(_dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of indices."""
    return np.dtype(np.int64)


def taken(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of x, for indices of integers."""
    x, where = _present(dtypes)
    if where.kind not in "iu":
        message = f"indices is of {where.name}; give integers"
        raise checks.operand("indices", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return x


def pad(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of x, for values that it has."""
    x, fill = dtypes
    assert x is not None
    if fill is not None and fill.kind == "c" and x.kind != "c":
        message = f"constant_values is of {fill.name} and x of {x.name}; give a real number"
        raise checks.operand("constant_values", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return x


def trace(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of ``numpy.sum``."""
    if parameters["dtype"] is not None:
        checks.element_type(parameters, "dtype")
    try:
        return reduction("sum")(dtypes, parameters)
    except TypeError as error:
        raise checks.operand("x", str(error), Reason.UNSUPPORTED_ELEMENT_TYPE) from None


def _requested(parameters: Parameters) -> DType | None:
    name = parameters.get("dtype")
    return None if name is None else NAMED[name]


def _present(dtypes: DTypes) -> list[DType]:
    return [dtype for dtype in dtypes if dtype is not None]
