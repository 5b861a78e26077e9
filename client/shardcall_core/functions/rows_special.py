"""Functions of mathematical physics, and the parts of floating-point numbers, in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shardcall_core.call_error import Reason
from shardcall_core.element_types import DType, canonical
from shardcall_core.functions import checks, element_rules, shape_rules, type_rules
from shardcall_core.functions.function import Function
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes
from shardcall_core.functions.signature import OperandInfo
from shardcall_core.functions.type_rules import DTypes


def rows() -> Iterator[Function]:
    """Yields the functions."""
    spec = "that of ``x`` along the axes that it keeps"
    yield Function.by_rules(
        "ldexp",
        (
            OperandInfo("x", "An array of floats.", spec="spec"),
            OperandInfo("y", "An array of integers that broadcasts with x.", spec="y_spec"),
        ),
        (),
        _ldexp_type,
        element_rules.broadcast,
        spec,
        summary="x times 2 to the power of an integer, as numpy.ldexp.",
        example="[0.5, 0.75], [2, 3]",
    )
    types, parts = (lambda dtypes, _: _frexp_types(dtypes)[0]), (lambda dtypes, _: _frexp_types(dtypes))
    yield Function.by_rules(
        "frexp",
        (OperandInfo("x", "An array of real numbers.", spec="spec"),),
        (),
        types,
        _of_two,
        "that of ``x``",
        out_specs=(),
        result_types=parts,
        summary="The mantissas of numbers and their exponents of 2, as numpy.frexp.",
        example="[2.0, 6.0]",
    )
    summaries = {
        "erf": "The error function, as scipy.special.erf.",
        "gammaln": "The logarithm of the size of the gamma function, as scipy.special.gammaln.",
    }
    x = (OperandInfo("x", "An array of real numbers.", spec="spec"),)
    for name, summary in summaries.items():
        of_x = shape_rules.as_operand(0)
        yield Function.by_rules(name, x, (), physics_type, of_x, "that of ``x``", summary=summary, example="[0.5, 1.5]")


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
