"""NumPy's rules for the types and shapes of functions that create arrays."""

from __future__ import annotations

from shardcall_core.functions import checks
from shardcall_core.functions.element_types import DType, is_float
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes
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


def sequence(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns one axis of ``size`` elements, of operands that are scalars."""
    for name, shape in zip(("start", "second", "last"), shapes, strict=False):
        _check_scalar(name, shape)
    size = checks.integer(parameters, "size")
    if size < 0:
        raise checks.invalid("size", size, "give 0 or more")
    return ((size,),)


def sequence_type(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of the operands, which is the same."""
    start, *others = dtypes
    assert start is not None
    for name, other in zip(("second", "last"), others, strict=False):
        if other is not None and other != start:
            message = f"{name} is of {other.name} and start of {start.name}; convert one of them"
            raise checks.operand(name, message, "UNSUPPORTED_ELEMENT_TYPE")
    return start


def linspace_type(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of the operands, which is a floating-point or complex one."""
    dtype = sequence_type(dtypes, parameters)
    if not (is_float(dtype) or dtype.kind == "c"):
        raise checks.operand("start", f"start is of {dtype.name}; give a float", "UNSUPPORTED_ELEMENT_TYPE")
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
        raise checks.operand("k", f"k is of {k.name}; give an integer", "UNSUPPORTED_ELEMENT_TYPE")
    return checks.element_type(parameters, "dtype")


def _check_scalar(name: str, shape: Shape | None) -> None:
    if shape:
        raise checks.operand(name, f"{name} is of shape {shape}; give a scalar")
