"""NumPy's rules for functions that take and replace elements at indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardcall_core.call_error import Reason
from shardcall_core.element_types import DType
from shardcall_core.functions import checks
from shardcall_core.functions.checks import invalid
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes, broadcast, present
from shardcall_core.functions.type_rules import DTypes

UPDATE_MODES = ("set", "add", "multiply", "min", "max")
"""The updates of `put_at`."""


def take_at(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the other axes of x, and in between those that the indices broadcast to."""
    x, *indices = present(shapes)
    return (_taken(x, indices, parameters),)


def put_at(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, for values that broadcast to that of the elements at the indices."""
    x, values, *indices = present(shapes)
    checks.one_of(parameters, "mode", UPDATE_MODES)
    _check_values(values, _taken(x, indices, parameters))
    return (x,)


def put_along_axis(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, for indices and values that broadcast with it along the other axes."""
    x, values, indices = present(shapes)
    along = checks.axis(parameters, "axis", len(x))
    if len(indices) != len(x):
        raise checks.operand("indices", f"indices is of shape {indices} and x of {x}; give as many axes")
    if any(i != along and size not in (1, x[i]) for i, size in enumerate(indices)):
        raise checks.operand("indices", f"indices is of shape {indices} and x of {x}, which do not broadcast")
    target = tuple(size if i != along else indices[along] for i, size in enumerate(x))
    _check_values(values, target)
    return (x,)


def flatnonzero(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the size requested, of at most the elements of x."""
    (x,), size = present(shapes), checks.integer(parameters, "size")
    if not 0 <= size <= math.prod(x):
        raise invalid("size", size, f"x is of shape {x}; give 0 to {math.prod(x)}")
    return ((size,),)


def take_at_type(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of x, for indices of integers."""
    x, *indices = (dtype for dtype in dtypes if dtype is not None)
    for i, dtype in enumerate(indices):
        _check_integers(f"indices[{i}]", dtype)
    return x


def put_at_type(dtypes: DTypes, parameters: Parameters) -> DType:
    """Returns the type of x, for indices of integers and an update that the type has."""
    x, values, *indices = (dtype for dtype in dtypes if dtype is not None)
    if values.kind == "c" and x.kind != "c":
        message = f"values is of {values.name} and x of {x.name}; give real numbers"
        raise checks.operand("values", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    if parameters["mode"] in ("min", "max") and x.kind == "c":
        message = f"x is of {x.name}, and complex numbers have no {parameters['mode']}; give real ones"
        raise checks.operand("x", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    return take_at_type((x, *indices), parameters)


def put_along_axis_type(dtypes: DTypes, _: Parameters) -> DType:
    """Returns the type of x, for values that it can have and indices of integers."""
    x, values, indices = (dtype for dtype in dtypes if dtype is not None)
    _check_integers("indices", indices)
    return put_at_type((x, values), {"mode": "set"})


def _check_integers(name: str, dtype: DType) -> None:
    if dtype.kind not in "iu" and not dtype.name.endswith("int4"):
        raise checks.operand(name, f"{name} is of {dtype.name}; give integers", Reason.UNSUPPORTED_ELEMENT_TYPE)


def _taken(x: Shape, indices: Sequence[Shape], parameters: Parameters) -> Shape:
    axes, position = checks.axes(parameters, "axes", len(x)), checks.integer(parameters, "position")
    others = [size for i, size in enumerate(x) if i not in axes]
    if not indices or len(axes) != len(indices) or list(axes) != sorted(axes):
        raise invalid("axes", parameters["axes"], f"there are {len(indices)} arrays of indices; give an axis for each")
    if not 0 <= position <= len(others):
        raise invalid("position", position, f"x has {len(others)} other axes; give 0 to {len(others)}")
    try:
        (taken,) = broadcast(indices, parameters)
    except ValueError:
        message = f"the indices are of shapes {', '.join(map(str, indices))}, which do not broadcast"
        raise checks.operand("indices[1]", message) from None
    if 0 not in taken and any(not x[axis] for axis in axes):
        raise checks.operand("x", f"x is of shape {x}, without elements along an axis; take none from it")
    return checks.ranked("indices[0]", (*others[:position], *taken, *others[position:]))


def _check_values(values: Shape, to: Shape) -> None:
    missing = len(to) - len(values)
    if missing < 0 or any(size not in (1, n) for size, n in zip(values, to[missing:], strict=True)):
        raise checks.operand("values", f"values is of shape {values}, which does not broadcast to {to}")
