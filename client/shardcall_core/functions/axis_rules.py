"""NumPy's rules for the shapes of functions that sort an axis or take elements along it."""

from __future__ import annotations

import math

from shardcall_core.functions import checks
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes, present


def sort(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x; one axis for ``axis=None``."""
    (x,) = present(shapes)
    if parameters["axis"] is None:
        return ((math.prod(x),),)
    checks.axis(parameters, "axis", len(x))
    return (x,)


def take(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with that of the indices instead of the axis; that of the indices for ``axis=None``."""
    x, indices = present(shapes)
    if parameters["axis"] is None:
        count, shape = math.prod(x), indices
    else:
        along = checks.axis(parameters, "axis", len(x))
        count, shape = x[along], checks.ranked("indices", (*x[:along], *indices, *x[along + 1 :]))
    if not count and 0 not in indices:
        raise checks.operand("x", f"x is of shape {x}, without elements along the axis; take none from it")
    return (shape,)


def take_along_axis(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of the indices, broadcast with that of x along the other axes."""
    x, indices = present(shapes)
    along = checks.axis(parameters, "axis", len(x))
    if len(indices) != len(x):
        message = f"indices is of shape {indices} and x of {x}; give as many axes"
        raise checks.operand("indices", message)
    sizes = []
    for i, (of_x, of_indices) in enumerate(zip(x, indices, strict=True)):
        if i != along and 1 not in (of_x, of_indices) and of_x != of_indices:
            raise checks.operand("indices", f"indices is of shape {indices} and x of {x}, which do not broadcast")
        sizes.append(of_indices if i == along or of_x == 1 else of_x)
    if not x[along] and 0 not in sizes:
        raise checks.operand("x", f"x is of shape {x}, without elements along the axis; take none from it")
    return (tuple(sizes),)


def lexsort(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of a key, for keys along the first axis of x."""
    (x,) = present(shapes)
    if len(x) < 2 or not x[0]:
        raise checks.operand("x", f"x is of shape {x}; give one key or more along the first axis, of one axis or more")
    checks.axis(parameters, "axis", len(x) - 1, "a key")
    return (x[1:],)
