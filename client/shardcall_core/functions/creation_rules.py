"""NumPy's rules for the types and shapes of functions that create arrays."""

from __future__ import annotations

from shardcall_core.call_error import Reason
from shardcall_core.element_types import DType, is_float
from shardcall_core.functions import checks
from shardcall_core.functions.shape_rules import Parameters, Shape, ShapeRule, Shapes
from shardcall_core.functions.type_rules import DTypes


def full(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the parameter ``shape``, for a value that is a scalar."""
    _check_scalar("fill_value", shapes[0])
    return (checks.sizes(parameters, "shape"),)


def full_like(shapes: Shapes, _: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, for a value that is a scalar."""
    x, value = shapes
    _check_scalar("fill_value", value)
    assert x is not None
    return (x,)


def sequence(*names: str) -> ShapeRule:
    """Returns the rule of functions of one axis of ``size`` elements, whose operands of these names are scalars."""

    def rule(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
        for name, shape in zip(names, shapes, strict=True):
            _check_scalar(name, shape)
        size = checks.integer(parameters, "size")
        if size < 0:
            raise checks.invalid("size", size, "give 0 or more")
        return ((size,),)

    return rule


def arange_type(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of the operands, which is the same."""
    return _type_of_all(("start", "second"), dtypes)


def _type_of_all(names: tuple[str, ...], dtypes: DTypes) -> DType:
    first, *others = dtypes
    assert first is not None
    for name, other in zip(names[1:], others, strict=True):
        if other is not None and other != first:
            message = f"{name} is of {other.name} and {names[0]} of {first.name}; convert one of them"
            raise checks.operand(name, message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return first


def linspace_type(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of the operands, which is a floating-point or complex one."""
    dtype = _type_of_all(("start", "step", "last"), dtypes)
    if not (is_float(dtype) or dtype.kind == "c"):
        raise checks.operand("start", f"start is of {dtype.name}; give a float", Reason.UNSUPPORTED_ELEMENT_TYPE)
    return dtype


def eye(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the parameter ``shape``, of two sizes; k is a scalar."""
    _check_scalar("k", shapes[0])
    shape = checks.sizes(parameters, "shape")
    if len(shape) != 2:
        raise checks.invalid("shape", shape, "give two sizes")
    return (shape,)


def eye_type(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type that the parameter ``dtype`` names, for k of integers."""
    (k,) = dtypes
    if k is not None and k.kind not in "iu":
        raise checks.operand("k", f"k is of {k.name}; give an integer", Reason.UNSUPPORTED_ELEMENT_TYPE)
    return checks.element_type(parameters, "dtype")


def _check_scalar(name: str, shape: Shape | None) -> None:
    if shape:
        raise checks.operand(name, f"{name} is of shape {shape}; give a scalar")
