"""Reductions over axes, with NumPy's element types."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.element_types import DType
from shardcall_core.functions import checks, shape_rules, type_rules
from shardcall_core.functions.function import Check, Function
from shardcall_core.functions.signature import (
    Method,
    OperandInfo,
    ParameterInfo,
    ParameterValues,
    Signature,
    ValueCheck,
)
from shardcall_core.functions.type_rules import AVERAGES
from shardcall_core.layouts.layout import ArrayType, OperandTypes, required


@dataclass(frozen=True)
class ReduceParameters:
    """The parameters of every reduction."""

    axis: tuple[int, ...]
    keepdims: bool


@dataclass(frozen=True)
class SumParameters(ReduceParameters):
    """The parameters of a reduction whose element type may be chosen."""

    dtype: str


@dataclass(frozen=True)
class VarParameters(ReduceParameters):
    """The parameters of a reduction that divides by the number of elements less ``ddof``."""

    ddof: float


_SUMMARIES = {
    "sum": "The sum",
    "prod": "The product",
    "max": "The largest element, NaN if there is one",
    "min": "The smallest element, NaN if there is one",
    "mean": "The mean",
    "var": "The mean of the squared distances from the mean",
    "std": "The square root of var",
    "any": "Whether an element is true",
    "all": "Whether all elements are true",
    "argmax": "The index of the first of the largest elements, or of the first NaN",
    "argmin": "The index of the first of the smallest elements, or of the first NaN",
}
WITH_INITIAL = ("sum", "prod", "max", "min")
"""The reductions that take an initial value."""

WITH_WHERE = (*WITH_INITIAL, *AVERAGES, "any", "all")
"""The reductions that take a mask."""

_INDICES = ("argmax", "argmin")
REDUCTIONS = (*WITH_WHERE, *_INDICES)
_UNDEFINED = ("max", "min", *_INDICES)  # of no elements

_X = OperandInfo("x", "The array, of any rank and element type.", spec="spec")
_WHERE = OperandInfo("where", "Which elements count: true or not 0; broadcasts to x. All of them if left out.", True)
_INITIAL = OperandInfo("initial", "A scalar that the reduction begins with, converted to the result's type.", True)
_AXES = ParameterInfo(
    "axis", "Over which axis or axes; None for all. Negative ones count from the last.", None, "Axes | None"
)
_AXIS = ParameterInfo("axis", "Over which axis; None for all. Negative ones count from the last.", None, "Axis | None")
_KEEPDIMS = ParameterInfo("keepdims", "Whether reduced axes stay, of size 1.", False, "bool")
_DTYPE = ParameterInfo(
    "dtype", "The element type of the sum and the result; None for NumPy's.", None, "npt.DTypeLike | None"
)
_DDOF = ParameterInfo("ddof", "What is taken off the number of elements to divide by.", 0, "float | SupportsIndex")
_OTHERS = {"sum": _DTYPE, "prod": _DTYPE, "mean": _DTYPE, "var": _DDOF, "std": _DDOF}


def rows() -> Iterator[Function]:
    """Yields the functions."""
    for name in REDUCTIONS:
        operands = (_X, *[_WHERE] * (name in WITH_WHERE), *[_INITIAL] * (name in WITH_INITIAL))
        axis, others = _AXIS if name in _INDICES else _AXES, [_OTHERS[name]] if name in _OTHERS else []
        parameters = (axis, _KEEPDIMS, *others)
        spec, summary = "that of ``x``, without the reduced axes", f"{_SUMMARIES[name]}, as numpy.{name}."
        optional = ["initial"] * (name in WITH_INITIAL) + ["where"] * (name in WITH_WHERE)
        arguments = ", ".join(["x, axis", *(other.name for other in others), "*, keepdims", *optional])
        yield Function(
            name,
            operands,
            parameters,
            _check(name),
            spec,
            summary=summary,
            method=Method(arguments),
            example="np.arange(6).reshape(2, 3), axis=0",
        )


def operands_of(operands: OperandTypes) -> tuple[ArrayType, ArrayType | None, ArrayType | None]:
    """Returns x, ``where`` and ``initial``; None for those that are left out or that the reduction does not have."""
    x, where, initial = (*operands, None, None)[:3]
    return required(x), where, initial


def _check(name: str) -> Check:
    def check(operands: OperandTypes, parameters: ParameterValues) -> Signature[ReduceParameters]:
        x, where, initial = operands_of(operands)
        axes = _axes(name, parameters, x)
        keepdims = checks.flag(parameters, "keepdims")
        dtype = None if parameters.get("dtype") is None else checks.element_type(parameters, "dtype")
        result = _result_type(name, x.dtype, dtype)
        (shape,) = shape_rules.reduction((x.shape,), {"axis": axes, "keepdims": keepdims})
        starts = initial is not None or name not in _UNDEFINED
        if where is not None:
            _check_where(where, x)
        if initial is not None:
            _check_initial(initial, result)
        if not starts and 0 in [x.shape[i] for i in axes]:
            message = (
                f"x has shape {shorten(str(x.shape))}, and there is no {name} of no elements; "
                f"reduce over axes whose sizes are not 0{', or give initial' if name in WITH_INITIAL else ''}"
            )
            raise checks.operand("x", message)
        normal = ReduceParameters(axes, keepdims)
        if "ddof" in parameters:
            normal = VarParameters(axes, keepdims, checks.number(parameters, "ddof"))
        elif "dtype" in parameters:
            normal = SumParameters(axes, keepdims, result.name)
        value_checks = (_some_element(name),) if where is not None and not starts else ()
        return Signature(normal, (ArrayType(shape, result),), value_checks)

    return check


def _axes(name: str, parameters: ParameterValues, x: ArrayType) -> tuple[int, ...]:
    value = parameters["axis"]
    if name in _INDICES and isinstance(value, tuple):
        message = f"axis={shorten(value)} is a tuple; {name} takes one axis, or None for all"
        raise CallError(Reason.PARAMETER_TYPE, message, field="axis")
    # For compatibility, NumPy's ufuncs accept axis 0 of a scalar; its averages do not.
    if not x.ndim and value in (0, -1) and not isinstance(value, bool | float) and name not in AVERAGES:
        return ()
    return checks.axes(parameters, "axis", x.ndim)


def _result_type(name: str, x: DType, dtype: DType | None) -> DType:
    with suppress(TypeError):
        return type_rules.reduction(name)((x,), {"dtype": None if dtype is None else dtype.name})
    holds = x.name if x.name == "complex128" else "complex64" if x.kind == "c" else "float32"
    asked = "" if dtype is None else f" in {dtype.name}"
    raise CallError(
        Reason.UNSUPPORTED_ELEMENT_TYPE,
        f"the {name} of {x.name}{asked} would not hold its values; give a dtype that does, such as dtype={holds!r}",
        field="dtype" if _OTHERS.get(name) is _DTYPE else "x",
    )


def _check_where(where: ArrayType, x: ArrayType) -> None:
    here = x.shape[x.ndim - where.ndim :]
    if where.ndim > x.ndim or any(n not in (1, m) for n, m in zip(where.shape, here, strict=True)):
        shapes = f"where has shape {shorten(str(where.shape))} and x {shorten(str(x.shape))}"
        raise checks.operand("where", f"{shapes}; give one that broadcasts to x")


def _some_element(name: str) -> ValueCheck:
    return ValueCheck(
        "where",
        f"where is true for no element, and there is no {name} of no elements; give initial, which is the result then",
    )


def _check_initial(initial: ArrayType, result: DType) -> None:
    if initial.ndim:
        raise checks.operand("initial", f"initial has shape {shorten(str(initial.shape))}; give a scalar")
    if initial.dtype.kind == "c" and result.kind != "c":
        message = (
            f"initial is {initial.dtype.name} and the result {result.name}, which cannot hold it; give a real number"
        )
        raise checks.operand("initial", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
