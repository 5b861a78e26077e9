"""NumPy's rules for elementwise functions whose rules name the operand at fault."""

from __future__ import annotations

import numpy as np

from shardcall_core.call_error import Reason
from shardcall_core.element_types import DType
from shardcall_core.functions import checks, shape_rules, type_rules
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes
from shardcall_core.functions.type_rules import DTypes


def broadcast(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape to which the operands broadcast."""
    try:
        return shape_rules.broadcast(shapes, parameters)
    except ValueError:
        x, y = shapes
        raise checks.operand("y", f"y is of shape {y} and x of {x}, which do not broadcast") from None


def complex_type(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of complex numbers of two parts."""
    x, y = (dtype for dtype in dtypes if dtype is not None)
    if x != y or x.name not in ("float32", "float64"):
        raise checks.operand(
            "x",
            f"complex does not take {x.name} and {y.name}; give float32 or float64, the same for both",
            Reason.UNSUPPORTED_ELEMENT_TYPE,
        )
    return np.result_type(x, np.complex64)


def nextafter_type(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of ``numpy.nextafter``."""
    try:
        return type_rules.elementwise("nextafter")(dtypes, parameters)
    except TypeError:
        names = " and ".join(dtype.name for dtype in dtypes if dtype is not None)
        raise checks.operand(
            "x", f"nextafter does not take {names}; give floats", Reason.UNSUPPORTED_ELEMENT_TYPE
        ) from None
