"""NumPy's rules for the shapes of a function's results; of calls that the server accepts, unless a rule says more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

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


def present(shapes: Shapes) -> list[Shape]:
    """Returns the shapes of the operands that are not left out."""
    return [shape for shape in shapes if shape is not None]


def _axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(ndim))
    return tuple(axis % max(ndim, 1) for axis in ((axes,) if isinstance(axes, int) else axes))
