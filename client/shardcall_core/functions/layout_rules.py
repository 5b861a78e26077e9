"""NumPy's rules for the shapes of functions that move elements: indexing, reshaping, joining, padding.

Each rule refuses the arguments that its function does not accept, and names the argument at fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardcall_core.functions import checks
from shardcall_core.functions.checks import invalid
from shardcall_core.functions.shape_rules import Parameters, Shape, Shapes, present

PAD_MODES = ("constant", "edge", "reflect", "symmetric", "wrap")
"""The modes of `pad`."""


def getitem(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of the slice, for one start for each axis."""
    x, starts = present(shapes)
    _check_starts(x, starts)
    return (slice_shape(x, parameters),)


def setitem(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, for values that broadcast to the slice, and one start for each axis."""
    x, values, starts = present(shapes)
    _check_starts(x, starts)
    target = slice_shape(x, parameters)
    pairs = zip(values[::-1], target[::-1], strict=False)
    if len(values) > len(target) or any(size not in (1, target_size) for size, target_size in pairs):
        raise checks.operand("values", f"values is of shape {values}, which does not broadcast to the slice, {target}")
    return (x,)


def _check_starts(x: Shape, starts: Shape) -> None:
    if starts != (len(x),):
        raise checks.operand("starts", f"starts is of shape {starts} and x has {len(x)} axes; give one start for each")


def slice_shape(x: Shape, parameters: Parameters) -> Shape:
    """Returns the sizes of a slice of x, without the axes ``dropped``, with 1 for those ``inserted``."""
    counts, steps = checks.sizes(parameters, "sizes"), checks.integers(parameters, "steps")
    for name, values in (("sizes", counts), ("steps", steps)):
        if len(values) != len(x):
            raise invalid(name, values, f"x has {len(x)} axes; give one for each")
    for rows, count, step in zip(x, counts, steps, strict=True):
        if not step:
            raise invalid("steps", steps, "give steps other than 0")
        if count and (count - 1) * abs(step) >= rows:
            raise invalid("sizes", counts, f"x is of shape {x}, which has fewer elements in these steps")
    dropped = checks.axes({"dropped": checks.integers(parameters, "dropped")}, "dropped", len(x))
    if any(counts[i] != 1 for i in dropped):
        raise invalid("dropped", dropped, f"the sizes are {counts}; drop axes of size 1")
    kept = [count for i, count in enumerate(counts) if i not in dropped]
    return inserted(kept, checks.integers(parameters, "inserted"), "inserted")


def inserted(shape: Sequence[int], positions: Sequence[int], name: str) -> Shape:
    """Returns a shape with a size of 1 at each of some positions of the result.

    Raises:
        CallError: for a position that there is not, and one that is named twice.
    """
    ndim = len(shape) + len(positions)
    new = checks.axes({name: tuple(positions)}, name, ndim, "the result")
    sizes = iter(shape)
    return checks.ranked(name, [1 if i in new else next(sizes) for i in range(ndim)])


def reshape(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape requested, with the size of -1 filled in."""
    (x,) = present(shapes)
    shape, count = checks.sizes(parameters, "shape", minimum=-1), math.prod(x)
    if shape.count(-1) > 1:
        raise invalid("shape", shape, "leave at most one size open as -1")
    others = math.prod(size for size in shape if size != -1)
    if -1 in shape and others and not count % others:
        shape = tuple(count // others if size == -1 else size for size in shape)
    if -1 in shape or math.prod(shape) != count:
        raise invalid("shape", parameters["shape"], f"x is of shape {x}, {count} elements; give a shape of as many")
    return (shape,)


def expand_dims(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with new axes of size 1, at positions of the result."""
    (x,) = present(shapes)
    return (inserted(x, checks.integers(parameters, "axis"), "axis"),)


def squeezed(x: Shape, parameters: Parameters) -> tuple[int, ...]:
    """Returns the axes that `squeeze` removes."""
    if parameters["axis"] is None:
        return tuple(i for i, size in enumerate(x) if size == 1)
    removed = checks.axes(parameters, "axis", len(x))
    if any(x[i] != 1 for i in removed):
        raise invalid("axis", parameters["axis"], f"x is of shape {x}; name axes of size 1")
    return removed


def squeeze(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x without axes of size 1."""
    (x,) = present(shapes)
    removed = squeezed(x, parameters)
    return (tuple(size for i, size in enumerate(x) if i not in removed),)


def broadcast_to(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape requested, to which x broadcasts."""
    (x,) = present(shapes)
    shape = checks.sizes(parameters, "shape")
    behind = len(shape) - len(x)
    if behind < 0 or any(size not in (1, to) for size, to in zip(x, shape[behind:], strict=True)):
        raise invalid("shape", parameters["shape"], f"x is of shape {x}, which does not broadcast to it")
    return (shape,)


def flip(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x."""
    (x,) = present(shapes)
    checks.axes(parameters, "axis", len(x))
    return (x,)


def concatenate(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of the first array with the rows of all along the axis; one axis for ``axis=None``."""
    arrays = present(shapes)
    first, flat = arrays[0], parameters["axis"] is None
    if flat:
        return ((sum(map(math.prod, arrays)),),)
    if not first:
        raise checks.operand("arrays[0]", "arrays[0] is a scalar; concatenate takes arrays of one axis or more")
    along = checks.axis(parameters, "axis", len(first), "arrays[0]")
    for i, shape in enumerate(arrays):
        if len(shape) != len(first) or _without(shape, along) != _without(first, along):
            message = f"arrays[{i}] is of shape {shape} and arrays[0] of {first}; only axis {along} may differ"
            raise checks.operand(f"arrays[{i}]", message)
    return ((*first[:along], sum(shape[along] for shape in arrays), *first[along + 1 :]),)


def stack(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of the arrays with a new axis of their number."""
    arrays = present(shapes)
    for i, shape in enumerate(arrays):
        if shape != arrays[0]:
            message = f"arrays[{i}] is of shape {shape} and arrays[0] of {arrays[0]}; give arrays of one shape"
            raise checks.operand(f"arrays[{i}]", message)
    along = checks.axis(parameters, "axis", len(arrays[0]) + 1, "the result")
    return (checks.ranked("axis", (*arrays[0][:along], len(arrays), *arrays[0][along:])),)


def tile(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, each size times its number of copies; both get ones in front to be of one length."""
    (x,) = present(shapes)
    reps = checks.sizes(parameters, "reps")
    ndim = max(len(x), len(reps))
    return (tuple(a * b for a, b in zip(_leading(x, ndim), _leading(reps, ndim), strict=True)),)


def repeat(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with each row as often as the call says; flat for ``axis=None``."""
    (x,), count = present(shapes), checks.integer(parameters, "repeats")
    if count < 0:
        raise invalid("repeats", count, "give 0 or more")
    if parameters["axis"] is None:
        return ((math.prod(x) * count,),)
    along = checks.axis(parameters, "axis", len(x))
    return ((*x[:along], x[along] * count, *x[along + 1 :]),)


def triangle(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x; [N, N] for x [N], which stands for N equal rows."""
    (x,) = present(shapes)
    checks.integer(parameters, "k")
    if not x:
        raise checks.operand("x", "x is a scalar; give an array of one axis or more")
    return (x * 2 if len(x) == 1 else x,)


def diagonal_axes(x: Shape, parameters: Parameters) -> tuple[int, int]:
    """Returns the axes of the matrices whose diagonals a call takes."""
    if len(x) < 2:
        raise checks.operand("x", f"x is of shape {x}; give an array of two axes or more")
    rows, columns = (checks.axis(parameters, name, len(x)) for name in ("axis1", "axis2"))
    if rows == columns:
        raise invalid("axis2", parameters["axis2"], f"axis1={parameters['axis1']} is the same axis; give another")
    return rows, columns


def diagonal(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the other axes of x, then the length of the diagonal."""
    (x,) = present(shapes)
    axes, offset = diagonal_axes(x, parameters), checks.integer(parameters, "offset")
    rows, columns = (x[i] for i in axes)
    length = max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))
    return ((*(size for i, size in enumerate(x) if i not in axes), length),)


def trace(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the other axes of x."""
    return (diagonal(shapes, parameters)[0][:-1],)


def margins(x: Shape, parameters: Parameters) -> tuple[tuple[int, int], ...]:
    """Returns the rows that `pad` adds before and behind each axis."""
    width = checks.integers(parameters, "pad_width")
    if any(side < 0 for side in width):
        raise invalid("pad_width", parameters["pad_width"], "give numbers of rows, each 0 or more")
    if len(width) == 1:
        width *= 2
    if len(width) == 2:
        width *= len(x)
    if len(width) != 2 * len(x):
        allowed = f"x has {len(x)} axes; give one number, one before and one behind all axes, or both for each axis"
        raise invalid("pad_width", parameters["pad_width"], allowed)
    return tuple(zip(width[::2], width[1::2], strict=True))


def pad(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with the rows that are added before and behind each axis."""
    x, fill = shapes
    assert x is not None
    mode, rows = checks.one_of(parameters, "mode", PAD_MODES), margins(x, parameters)
    if fill:
        raise checks.operand("constant_values", f"constant_values is of shape {fill}; give a scalar")
    if fill is not None and mode != "constant":
        raise checks.operand("constant_values", f"mode={mode!r} takes no constant_values; leave it out")
    if mode != "constant" and any(sum(added) and not size for added, size in zip(rows, x, strict=True)):
        raise invalid("mode", mode, f"x is of shape {x}; an axis without elements is extended by mode='constant' only")
    return (tuple(before + size + behind for (before, behind), size in zip(rows, x, strict=True)),)


def _without(shape: Shape, along: int) -> Shape:
    return (*shape[:along], *shape[along + 1 :])


def _leading(sizes: Sequence[int], ndim: int) -> Shape:
    return (1,) * (ndim - len(sizes)) + tuple(sizes)
