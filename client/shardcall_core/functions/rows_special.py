"""Functions of mathematical physics, and the parts of floating-point numbers, in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardcall_core.call_error import Reason
from shardcall_core.functions import checks, element_rules, shape_rules, type_rules
from shardcall_core.functions.element_types import DType, canonical
from shardcall_core.functions.function import Function
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes
from shardcall_core.functions.signature import OperandInfo
from shardcall_core.functions.type_rules import DTypes

_X = OperandInfo("x", spec="spec")


def rows() -> Iterator[Function]:
    """Yields the functions."""
    spec = "that of ``x`` along the axes that it keeps"
    scaled = _X, OperandInfo("y", spec="y_spec")
    yield Function.by_rules("ldexp", scaled, {}, _ldexp_type, element_rules.broadcast, spec)
    types, parts = (lambda dtypes, _: _frexp_types(dtypes)[0]), (lambda dtypes, _: _frexp_types(dtypes))
    yield Function.by_rules("frexp", (_X,), {}, types, _of_two, "that of ``x``", out_specs=(), result_types=parts)
    for name in ("erf", "gammaln"):
        yield Function.by_rules(name, (_X,), {}, physics_type, shape_rules.as_operand(0), "that of ``x``")


def physics_type(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of SciPy's functions of real numbers: float32 of float32, else float64."""
    (x,) = (dtype for dtype in dtypes if dtype is not None)
    if x == np.float32:
        return x
    if not np.can_cast(x, np.float64, "safe"):
        raise checks.operand("x", f"x is of {x.name}; give real numbers", Reason.UNSUPPORTED_ELEMENT_TYPE)
    return np.dtype(np.float64)


def _ldexp_type(dtypes: DTypes, _: Parameters) -> DType:
    try:
        return type_rules.loop("ldexp", *dtypes).result
    except TypeError:
        names = " and ".join(dtype.name for dtype in dtypes if dtype is not None)
        message = f"ldexp does not take {names}; give floats and integers of 32 or 64 bits"
        raise checks.operand("x", message, Reason.UNSUPPORTED_ELEMENT_TYPE) from None


def _frexp_types(dtypes: DTypes) -> tuple[DType, ...]:
    (x,) = (dtype for dtype in dtypes if dtype is not None)
    try:
        _, mantissa, exponent = np.frexp.resolve_dtypes((x, None, None))
    except TypeError:
        raise checks.operand("x", f"x is of {x.name}; give real numbers", Reason.UNSUPPORTED_ELEMENT_TYPE) from None
    return canonical(mantissa), canonical(exponent)


def _of_two(shapes: Shapes, _: Parameters) -> tuple[Shape, ...]:
    return (shape_rules.present(shapes)[0],) * 2
