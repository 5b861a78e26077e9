"""NumPy's rules for elementwise functions whose rules name the operand at fault."""

from __future__ import annotations

from shardcall_core.call_error import Reason
from shardcall_core.functions import checks, shape_rules, type_rules
from shardcall_core.functions.element_types import DType
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes
from shardcall_core.functions.type_rules import DTypes


def broadcast(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape to which the operands broadcast."""
    try:
        return shape_rules.broadcast(shapes, parameters)
    except ValueError:
        x, y = shapes
        raise checks.operand("y", f"y is of shape {y} and x of {x}, which do not broadcast") from None


def nextafter_type(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of ``numpy.nextafter``."""
    try:
        return type_rules.elementwise("nextafter")(dtypes, parameters)
    except TypeError:
        names = " and ".join(dtype.name for dtype in dtypes if dtype is not None)
        raise checks.operand(
            "x", f"nextafter does not take {names}; give floats", Reason.UNSUPPORTED_ELEMENT_TYPE
        ) from None
