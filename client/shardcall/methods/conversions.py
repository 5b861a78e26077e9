"""Conversions of arguments to those of a kernel, for the methods whose arguments are NumPy's and not the kernel's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import clip_operands, row, typed, typed_initial
from shardcall_core.element_types import DType
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.element_types import dtype_name, parse_dtype
from shardcall_core.types.errors import InvalidOperandError, InvalidParameterError, ParameterTypeError

Operands: TypeAlias = Sequence[OperandLike | None]
Conversion: TypeAlias = Callable[[str, Operands, dict[str, Any]], Operands]
"""Takes a function's name, its operands and its parameters; changes the parameters and returns the operands."""

_MAX = 2**64 - 1  # of an operand
_TYPES = ("dtype", "preferred_element_type")  # parameters that are element types


def _by_types(_name: str, operands: Operands, parameters: dict[str, Any]) -> Operands:
    """Converts the names and classes of element types to names."""
    for parameter in _TYPES:
        if parameter in parameters:
            parameters[parameter] = dtype_name(parameters[parameter])
    return operands


def _elementwise(name: str, operands: Operands, _: dict[str, Any]) -> Operands:
    return typed(name, operands)


def _where(_name: str, operands: Operands, _: dict[str, Any]) -> Operands:
    condition, *values = operands
    return condition, *typed("where", values)


def _clip(_name: str, operands: Operands, _: dict[str, Any]) -> Operands:
    return clip_operands(*operands)  # type: ignore[arg-type]  # x is none of those that may be None


def _reduction(name: str, operands: Operands, parameters: dict[str, Any]) -> Operands:
    _by_types(name, operands, parameters)
    x, where, *initial = operands
    where = None if where is True else where  # NumPy's default
    if name in ("max", "min") and where is not None and initial[0] is None:
        message = "where may leave no element to choose from; give initial, which is the result then"
        raise InvalidOperandError(message, field="where")
    dtype = parameters.get("dtype")
    return x, where, *(typed_initial(name, x, dtype, value) for value in initial)  # type: ignore[arg-type]


def _astype(_name: str, operands: Operands, parameters: dict[str, Any]) -> Operands:
    parameters["dtype"] = parse_dtype(parameters["dtype"]).name
    return operands


def _convolve(_name: str, operands: Operands, _: dict[str, Any]) -> Operands:
    return tuple(operand if operand is None else row(operand) for operand in operands)


def _roll(_name: str, operands: Operands, parameters: dict[str, Any]) -> Operands:
    parameters["shift"] = _within_64_bits(parameters["shift"], operands[0])
    return operands


def _within_64_bits(shift: Any, x: OperandLike | None) -> Any:
    """Returns shifts with those beyond 64 bits taken modulo the number of elements, a multiple of every axis's size."""
    if isinstance(shift, list | tuple):
        return [_within_64_bits(single, x) for single in shift]
    if not isinstance(shift, int | np.integer) or -(2**63) <= shift < 2**63:
        return shift
    shape = getattr(x, "shape", None) or np.shape(x)  # type: ignore[arg-type]
    return int(shift) % max(math.prod(map(int, shape)), 1)


def _pad(_name: str, operands: Operands, parameters: dict[str, Any]) -> Operands:
    widths = parameters["pad_width"]
    if isinstance(widths, dict):
        widths = pairs_of(widths, np.ndim(operands[0]))  # type: ignore[arg-type]
    width = np.asarray(widths)
    if width.dtype.kind == "f" and not width.size:  # of an empty list
        raise ParameterTypeError("pad_width is empty; give numbers of rows", field="pad_width")
    if width.dtype.kind in "iu" and width.ndim:
        widths = _pairs(width, np.ndim(operands[0]))  # type: ignore[arg-type]
    parameters["pad_width"] = widths
    return operands


def pairs_of(widths: Mapping[int, Any], ndim: int) -> list[Any]:
    """Returns the rows before and behind each axis, of rows by axis.

    Raises:
        numpy.exceptions.AxisError: for an axis that there is not.
    """
    pairs: list[Any] = [(0, 0)] * ndim
    for axis, rows in widths.items():
        pairs[normalize_axis_index(axis, ndim)] = rows if isinstance(rows, Sequence) else (rows, rows)
    return pairs


def _pairs(width: NDArray, ndim: int) -> list[int]:
    """Returns the rows before and behind: one number or one of each for all axes, or both of each axis.

    Raises:
        InvalidParameterError: for what NumPy does not broadcast to both of each axis.
    """
    if width.ndim < 3 and (width.size == 1 or (width.size == 2 and width.shape != (2, 1))):
        return width.ravel().tolist()
    try:
        return np.broadcast_to(width, (ndim, 2)).ravel().tolist()
    except ValueError:
        message = (
            f"pad_width is of shape {width.shape} and x has {ndim} axes; give one number, one before and one behind "
            "all axes, or one or both for each axis"
        )
        raise InvalidParameterError(message, field="pad_width") from None


def _uniform(_name: str, operands: Operands, parameters: dict[str, Any]) -> Operands:
    seed, low, high = operands
    _astype("", operands, parameters)
    low, high = 0.0 if low is None else low, 1.0 if high is None else high
    _check_order(low, high, parameters["shape"], may_be_equal=True)
    return seed, low, high


def _randint(_name: str, operands: Operands, parameters: dict[str, Any]) -> Operands:
    _, low, high = operands
    dtype = parse_dtype(parameters["dtype"])
    parameters["dtype"] = dtype.name
    _check_order(low, high, parameters["shape"], may_be_equal=False)
    if dtype.kind in "iu":
        _check_bound("low", low, dtype, 0)
        _check_bound("high", high, dtype, 1)
    return operands


def _check_order(low: OperandLike | None, high: OperandLike | None, shape: Any, *, may_be_equal: bool) -> None:
    lower, upper = _scalar(low), _scalar(high)
    if not all(isinstance(bound, int | float | np.integer | np.floating) for bound in (lower, upper)):
        return
    if (upper < lower or (upper == lower and not may_be_equal)) and 0 not in (
        shape if isinstance(shape, Sequence) else (shape,)
    ):
        raise InvalidOperandError(
            f"low={lower} and high={upper}; give a high {'of at least' if may_be_equal else 'above'} low", field="high"
        )


def _scalar(bound: OperandLike | None) -> Any:
    return bound[()] if isinstance(bound, np.ndarray) and not bound.ndim else bound


def _check_bound(name: str, bound: OperandLike | None, dtype: DType, beyond: int) -> None:
    value = _scalar(bound)
    min_value, max_value = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max) + beyond, _MAX)
    if isinstance(value, int | np.integer) and not min_value <= value <= max_value:
        wider = ", or a wider dtype" if dtype.itemsize < 8 else ""
        raise InvalidOperandError(
            f"{name}={value} and the values are {dtype.name}; give a {name} from {min_value} to {max_value}{wider}",
            field=name,
        )


def _conversions() -> dict[str, Conversion]:
    conversions: dict[str, Conversion] = {}
    for name, function in FUNCTIONS.items():
        operands = function.named_operands
        if "where" in operands:
            conversions[name] = _reduction
        elif operands == ("x", "y"):
            conversions[name] = _elementwise
        elif not function.defaults.keys().isdisjoint(_TYPES):
            conversions[name] = _by_types
    return conversions | {
        "where": _where,
        "clip": _clip,
        "astype": _astype,
        "convolve": _convolve,
        "roll": _roll,
        "pad": _pad,
        "uniform": _uniform,
        "normal": _astype,
        "randint": _randint,
    }


CONVERSIONS: Mapping[str, Conversion] = MappingProxyType(_conversions())
"""The conversions by the names of functions; the arguments of others are those of their kernels."""
