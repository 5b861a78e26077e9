"""NumPy's rules for running products, counts, and positions among sorted numbers."""

from __future__ import annotations

import math

import numpy as np

from shardcall_core.call_error import Reason
from shardcall_core.element_types import DType
from shardcall_core.functions import checks
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes, present
from shardcall_core.functions.type_rules import DTypes

SIDES = ("left", "right")
"""The positions of equal numbers: before or behind them."""


def products(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of ``numpy.cumprod``."""
    x = dtypes[0]
    assert x is not None
    requested = None if parameters["dtype"] is None else checks.element_type(parameters, "dtype")
    if requested is not None and x.kind == "c" and requested.kind != "c":
        raise checks.operand("x", f"x is of {x.name}, and {requested.name} loses its imaginary part", _TYPE)
    return requested or np.cumprod(np.empty(0, x)).dtype


def running(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, flattened without an axis, of one axis or more."""
    (x,) = present(shapes)
    if parameters["axis"] is None:
        return ((math.prod(x),),)
    checks.axis(parameters, "axis", max(len(x), 1))
    return (x or (1,),)


def positions(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of positions, for numbers that can be compared."""
    a, v = dtypes
    try:
        np.result_type(a, v)
    except TypeError:
        message = f"a is of {a.name if a else a} and v of {v.name if v else v}; convert one to the type of the other"
        raise checks.operand("v", message, _TYPE) from None
    return np.dtype(np.int64)


def searchsorted(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of v."""
    a, v = present(shapes)
    checks.one_of(parameters, "side", SIDES)
    if len(a) != 1:
        raise checks.operand("a", f"a is of shape {a}; give an array of one axis")
    return (v,)


def counts(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of counts of integers, or of sums of their weights."""
    x, weights = dtypes
    assert x is not None
    if x.kind not in "biu":
        raise checks.operand("x", f"x is of {x.name}; give integers", _TYPE)
    if weights is None:
        return np.dtype(np.int64)
    return _real("weights", weights)


def bincount(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the number of counts."""
    x, weights = shapes
    (length,) = checks.sizes({"length": checks.integer(parameters, "length")}, "length")
    if x is None or len(x) != 1:
        raise checks.operand("x", f"x is of shape {x}; give an array of one axis")
    if weights is not None and weights != x:
        raise checks.operand("weights", f"weights is of shape {weights} and x of {x}; give one for each integer")
    return ((length,),)


def interpolated(dtypes: DTypes, _: Parameters) -> DType:
    """Returns float64, complex128 for complex values."""
    x, xp, fp, *ends = dtypes
    for name, dtype in (("x", x), ("xp", xp)):
        assert dtype is not None
        _real(name, dtype)
    is_complex = fp is not None and fp.kind == "c"
    for name, dtype in zip(("fp", "left", "right"), (fp, *ends), strict=True):
        if dtype is not None and not (is_complex and dtype.kind == "c"):
            _real(name, dtype)
    return np.dtype(np.complex128 if is_complex else np.float64)


def interp(shapes: Shapes, _: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x."""
    x, xp, fp, *ends = shapes
    assert x is not None
    if xp is None or len(xp) != 1 or not xp[0]:
        raise checks.operand("xp", f"xp is of shape {xp}; give one axis of one coordinate or more")
    if fp != xp:
        raise checks.operand("fp", f"fp is of shape {fp} and xp of {xp}; give one value for each coordinate")
    for name, shape in zip(("left", "right"), ends, strict=True):
        if shape:
            raise checks.operand(name, f"{name} is of shape {shape}; give a scalar")
    return (x,)


_TYPE = Reason.UNSUPPORTED_ELEMENT_TYPE


def _real(name: str, dtype: DType) -> DType:
    """Returns float64 for real numbers."""
    if dtype.kind == "c":
        raise checks.operand(name, f"{name} is of {dtype.name}; give real numbers", _TYPE)
    return np.dtype(np.float64)
