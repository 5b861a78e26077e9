"""NumPy's rules for the shapes of a function's results; of calls that the server accepts, unless a rule says more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from shardcall_core.functions import subscripts

Shape: TypeAlias = tuple[int, ...]

Shapes: TypeAlias = Sequence[Shape | None]
"""The shapes of a call's operands; None for one left out."""

Parameters: TypeAlias = Mapping[str, Any]
"""A call's parameters, defaults included."""

ShapeRule: TypeAlias = Callable[[Shapes, Parameters], tuple[Shape, ...]]
"""Returns the shape of each result of a call."""


def broadcast(shapes: Shapes, _: Parameters) -> tuple[Shape, ...]:
    """Returns the shape that all operands broadcast to.

    Raises:
        ValueError: if there is none.
    """
    all_shapes = present(shapes)
    ndim = max(map(len, all_shapes), default=0)
    columns = zip(*((1,) * (ndim - len(shape)) + shape for shape in all_shapes), strict=True)
    sizes = [{*column} - {1} or {1} for column in columns]
    if any(len(options) > 1 for options in sizes):
        raise ValueError(f"shapes {', '.join(map(str, all_shapes))} do not broadcast")
    return (tuple(size for (size,) in sizes),)


def as_operand(index: int) -> ShapeRule:
    """Returns the rule of functions whose result has the shape of an operand."""
    return lambda shapes, _: (present(shapes[index : index + 1])[0],)


def reduction(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x without the axes that are reduced, or with 1 for each if ``keepdims``."""
    x, keepdims = present(shapes)[0], parameters["keepdims"]
    axes = _axes(parameters["axis"], len(x))
    return (tuple(1 if i in axes else size for i, size in enumerate(x) if keepdims or i not in axes),)


def diff(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with the rows that differences of order n leave of prepend, x and append."""
    (x, *edges), n = shapes, parameters["n"]
    assert x is not None
    if not n:
        return (x,)
    axis = parameters["axis"] % len(x)
    rows = x[axis] + sum(edge[axis] if edge else 1 for edge in edges if edge is not None)
    return (_with_rows(x, axis, max(0, rows - n)),)


def gradient(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x for each axis."""
    x = present(shapes)[0]
    return (x,) * len(_axes(parameters["axis"], len(x)))


def cumsum(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x, flattened without an axis, of one axis or more."""
    x = present(shapes)[0]
    return ((math.prod(x),) if parameters["axis"] is None else x or (1,),)


def convolve(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of x with the rows of the mode: those of all overlaps, of the longer operand, of full ones."""
    x, (length,) = present(shapes)
    axis, mode = parameters["axis"] % len(x), parameters["mode"]
    long, short = max(x[axis], length), min(x[axis], length)
    counts = {"full": long + short - 1, "same": long, "valid": long - short + 1}
    return (_with_rows(x, axis, [*counts.values()][2 - mode] if isinstance(mode, int) else counts[mode]),)


def matmul(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the shape of ``numpy.matmul`` of both factors, their last two axes swapped where the call says so."""
    lhs, rhs = present(shapes)
    (batch,) = broadcast((lhs[:-2], rhs[:-2]), parameters)
    rows = (lhs[-1 if parameters.get("transpose_lhs") else -2],) if len(lhs) > 1 else ()
    columns = (rhs[-2 if parameters.get("transpose_rhs") else -1],) if len(rhs) > 1 else ()
    return ((*batch, *rows, *columns),)


def einsum(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the sizes of the labels of the result, implicit ones included."""
    all_shapes = present(shapes)
    labels, result = subscripts.parse(parameters["subscripts"], all_shapes)
    axes = [axis for pair in zip(labels, all_shapes, strict=True) for axis in zip(*pair, strict=True)]
    sizes = dict(sorted(axes, key=lambda axis: axis[1] != 1))  # of a label's sizes, the last one that is not 1
    return (tuple(sizes[label] for label in result),)


def transpose(shapes: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the sizes of x in the order of ``axes``, reversed by default."""
    x, axes = present(shapes)[0], parameters["axes"]
    return (x[::-1] if axes is None else tuple(x[axis] for axis in _axes(axes, len(x))),)


def requested(_: Shapes, parameters: Parameters) -> tuple[Shape, ...]:
    """Returns the parameter ``shape``, one size or several."""
    shape = parameters["shape"]
    return ((shape,) if isinstance(shape, int) else tuple(shape),)


def present(shapes: Shapes) -> list[Shape]:
    """Returns the shapes of the operands that are not left out."""
    return [shape for shape in shapes if shape is not None]


def _axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(ndim))
    return tuple(axis % max(ndim, 1) for axis in ((axes,) if isinstance(axes, int) else axes))


def _with_rows(shape: Shape, axis: int, rows: int) -> Shape:
    return (*shape[:axis], rows, *shape[axis + 1 :])
