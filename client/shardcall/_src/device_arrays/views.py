"""Views: arrays that are parts of another array's memory, or give it another shape, as in NumPy.

A view is a base and the steps from it, each a function of the table. Its values are computed when they are read; a
write computes the values of the base anew, step by step backwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from shardcall_core.element_types import DType
from shardcall_core.functions.indexing import BasicIndex, basic_index
from shardcall_core.types.arrays import Array, NDArray

VIEWS = frozenset(
    (
        *("broadcast_to", "diagonal", "einsum", "expand_dims", "flip", "getitem", "imag", "real", "reshape"),
        *("squeeze", "transpose"),
    )
)
"""The functions whose results may be views of their first operand in NumPy."""

ARRAYS = frozenset(("copy", "full", "full_like"))
"""The functions whose results without axes are arrays in NumPy, and no scalars."""

_READ_ONLY = ("broadcast_to", "diagonal")
_AS_RESHAPED = ("reshape", "expand_dims", "squeeze")
_SELECTING = ("getitem", "transpose", "flip", "expand_dims", "squeeze")  # each an index or a transpose


class ViewStep(NamedTuple):
    """A step from an array to a view of it: a call of a function.

    Attributes:
        name: the name of the function, one of `VIEWS`.
        starts: its second operand, of ``getitem``; empty for the others.
        arguments: its parameters by name.
        type: the type of the view.
    """

    name: str
    starts: tuple[int, ...]
    arguments: tuple[tuple[str, Any], ...]
    type: Array

    @property
    def is_read_only(self) -> bool:
        """True where NumPy's view is not writeable."""
        return self.name in _READ_ONLY

    @property
    def basic_index(self) -> BasicIndex:
        """The index of ``getitem``."""
        return BasicIndex(self.starts, **dict(self.arguments))

    def index_of(self, shape: Sequence[int]) -> BasicIndex:
        """Returns the index that it is, which selects and is no transpose, of an array of a shape."""
        if self.name == "getitem":
            return self.basic_index
        is_new, axis = self.name == "expand_dims", dict(self.arguments).get("axis")
        ndim = len(self.type.shape if is_new else shape)
        if axis is None:
            axes = {i for i in range(ndim) if self.name == "flip" or shape[i] == 1}
        else:
            axes = {i % ndim for i in (axis if isinstance(axis, tuple) else (axis,))}
        item = {"expand_dims": None, "squeeze": 0, "flip": slice(None, None, -1)}[self.name]
        return basic_index(shape, tuple(item if i in axes else slice(None) for i in range(ndim)))

    @property
    def operands(self) -> tuple[NDArray, ...]:
        """The operands of the call behind the first."""
        return (np.asarray(self.starts, np.int64),) if self.name == "getitem" else ()

    def is_all_of(self, shape: tuple[int, ...]) -> bool:
        """Returns whether the view is all of an array, in its shape.

        Args:
            shape: the shape of the array.
        """
        if self.type.shape != shape:
            return False
        return self.name in ("broadcast_to", *_AS_RESHAPED) or (self.name == "getitem" and self._is_complete(shape))

    def is_front_of(self, shape: tuple[int, ...], axis: int) -> bool:
        """Returns whether it is an index of the first elements along one axis, and of all along the others.

        Args:
            shape: the shape of the array.
            axis: the axis.
        """
        if self.name != "getitem" or any(self.starts) or len(self.type.shape) != len(shape):
            return False
        others = [i for i in range(len(shape)) if i != axis]
        index = self.basic_index
        return not (index.dropped or index.inserted or {*index.steps} - {1}) and all(
            index.sizes[i] == shape[i] for i in others
        )

    def is_reshape_of(self, shape: tuple[int, ...]) -> bool:
        """Returns whether it is an index or a transpose that leaves all elements of an array in their sequence.

        Args:
            shape: the shape of the array.
        """
        if self.name == "transpose":
            axes = dict(self.arguments).get("axes") or range(len(shape))[::-1]
            long = [axis % len(shape) for axis in axes if shape[axis] > 1]
            return long == sorted(long)
        return self.name == "getitem" and self.basic_index.sizes == shape and {*self.basic_index.steps} <= {1}

    def backward(self, functions: Any, x: Any, new: Any) -> Any:
        """Returns the array that it is a view of, with other values in the view.

        Args:
            functions: the functions of arrays.
            x: the array.
            new: the values.
        """
        arguments = dict(self.arguments)
        if self.name in _AS_RESHAPED:
            return functions.compute("reshape", new, shape=x.shape)
        if self.name == "getitem":
            if not new.size or self._is_complete(x.shape):
                return new if new.size else x
            return functions.compute("setitem", x, new, np.asarray(self.starts, np.int64), **arguments)
        if self.name == "transpose":
            axes = arguments.get("axes")
            inverse = None if axes is None else tuple(int(i) for i in np.argsort([axis % x.ndim for axis in axes]))
            return functions.compute("transpose", new, axes=inverse)
        if self.name == "flip":
            return functions.compute("flip", new, **arguments)
        if self.name == "einsum":
            return _with_diagonals(functions, x, new, arguments["subscripts"])
        if self.name == "real":
            return functions.compute("complex", new, functions.compute("imag", x))
        return functions.compute("complex", functions.compute("real", x), new)

    def _is_complete(self, shape: tuple[int, ...]) -> bool:
        """Returns whether an index gives all elements of an array in the same shape."""
        return self.is_reshape_of(shape) and not (self.basic_index.dropped or self.basic_index.inserted)

    def of_layout(self, layout: NDArray) -> NDArray:
        """Returns the memory layout of the view, as `layout_of`, for that of the array that it is a view of."""
        arguments = dict(self.arguments)
        match self.name:
            case "getitem":
                return layout[(*key_of(self.basic_index), ...)]
            case "reshape":
                # of another shape first, or axes of size 1 would keep their strides where steps to it were left out
                layout = np.reshape(layout, (1, *self.type.shape), copy=False)
                return np.reshape(layout, self.type.shape, copy=False)
            case "expand_dims":
                return np.expand_dims(layout, arguments["axis"])
            case "real" | "imag":
                return cast(NDArray, getattr(layout, self.name))
            case "einsum":
                return cast(NDArray, np.einsum(arguments["subscripts"], layout))
            case name:
                return cast(NDArray, getattr(np, name)(layout, **arguments))


def _with_diagonals(functions: Any, x: Any, new: Any, subscripts: str) -> Any:
    """Returns an array with other values in the view that `einsum` gives, where its indices of one label are equal."""
    taken, _, kept = subscripts.partition("->")
    labels = "".join(dict.fromkeys(taken))
    new = functions.compute("einsum", new, subscripts=f"{kept}->{labels}")
    repeated = [axis for axis, label in enumerate(taken) if label in taken[:axis]]
    if not repeated:
        return new
    indices = np.ogrid[tuple(map(slice, x.shape))]
    is_in_view = np.logical_and.reduce(
        np.broadcast_arrays(*(indices[axis] == indices[taken.index(taken[axis])] for axis in repeated))
    )
    shape = [1 if axis in repeated else size for axis, size in enumerate(x.shape)]
    return functions.where(is_in_view, functions.compute("reshape", new, shape=shape), x)


def with_step(base: Array, steps: tuple[ViewStep, ...], step: ViewStep) -> tuple[ViewStep, ...]:
    """Returns the steps to a view of a view, as few as lead there where steps combine or undo each other.

    Args:
        base: the type of the array that the steps begin at.
        steps: the steps to the first view, which may be none.
        step: the step from there.
    """
    before = steps[-1].type if steps else base
    step = _transposing(step)
    if steps and step.is_all_of(before.shape) and (steps[-1].is_read_only or not step.is_read_only):
        return steps
    first = len(steps)
    while first and steps[first - 1].name in _SELECTING:
        first -= 1
    head, tail = steps[:first], steps[first:]
    if tail and step.name in _SELECTING:
        selecting = _combined(head[-1].type if head else base, (*tail, step))
        if selecting is not None and len(selecting) <= len(tail):
            return (*head, *selecting) or (index_step(basic_index(base.shape, ...), base.dtype),)
    while steps and step.name in _AS_RESHAPED:
        shape = (steps[-2].type if len(steps) > 1 else base).shape
        if steps[-1].name not in _AS_RESHAPED and not (step.name == "reshape" and steps[-1].is_reshape_of(shape)):
            break
        steps, step = steps[:-1], ViewStep("reshape", (), (("shape", step.type.shape),), step.type)
    return (*steps, step)


def _transposing(step: ViewStep) -> ViewStep:
    """Returns a step as a transpose if it is an ``einsum`` that takes no diagonal, and as it is otherwise."""
    taken, _, kept = dict(step.arguments).get("subscripts", "").partition("->")
    if step.name != "einsum" or len({*taken}) < len(taken):
        return step
    return ViewStep("transpose", (), (("axes", tuple(map(taken.index, kept))),), step.type)


def _combined(x: Array, steps: Sequence[ViewStep]) -> tuple[ViewStep, ...] | None:
    """Returns steps that select elements as an index, a transpose, both or nothing; None if there is no such index.

    Args:
        x: the type of the array that the steps begin at.
        steps: the steps, of `_SELECTING`.
    """
    ndim = len(x.shape)
    starts, sizes, between = [0] * ndim, [*x.shape], [1] * ndim
    axes: list[int] = [*range(ndim)]  # of the view, as those of the array; -1 for new ones
    for step in steps:
        if step.name == "transpose":
            order = dict(step.arguments).get("axes")
            axes = axes[::-1] if order is None else [axes[i] for i in order]
            continue
        index = step.index_of([1 if axis < 0 else sizes[axis] for axis in axes])
        for axis, start, size, gap in zip(axes, index.starts, index.sizes, index.steps, strict=True):
            if axis >= 0:
                starts[axis] = starts[axis] + between[axis] * start if size else 0
                between[axis] = between[axis] * gap if size > 1 else 1
                sizes[axis] = size
            elif not size:
                return None
        axes = [axis for i, axis in enumerate(axes) if i not in index.dropped]
        for i in index.inserted:
            axes.insert(i, -1)
    kept = [axis for axis in axes if axis >= 0]
    new = len(kept) if kept != sorted(kept) else None  # the first new axis, if there is a transpose behind the index
    inserted = [i for i, axis in enumerate(axes) if axis < 0] if new is None else range(new, len(axes))
    dropped = tuple(axis for axis in range(ndim) if axis not in kept)
    first = index_step(BasicIndex(tuple(starts), tuple(sizes), tuple(between), dropped, tuple(inserted)), x.dtype)
    combined = () if first.is_all_of(x.shape) else (first,)
    if new is None:
        return combined
    news = iter(inserted)
    permutation = tuple(next(news) if axis < 0 else sorted(kept).index(axis) for axis in axes)
    return (*combined, ViewStep("transpose", (), (("axes", permutation),), steps[-1].type))


def index_step(index: BasicIndex, dtype: DType) -> ViewStep:
    """Returns the step to the elements at an index of an array of a type."""
    return ViewStep("getitem", index.starts, tuple(index.parameters.items()), Array(index.shape, dtype))


def read_only_step(view_type: Array) -> ViewStep:
    """Returns the step to all elements, as a view that is not written to."""
    return ViewStep("broadcast_to", (), (("shape", view_type.shape),), view_type)


def key_of(index: BasicIndex) -> tuple[Any, ...]:
    """Returns what is between brackets for an index."""
    items: list[Any] = []
    result_axis = 0
    for axis, (start, size, step) in enumerate(zip(index.starts, index.sizes, index.steps, strict=True)):
        if axis in index.dropped:
            items.append(start)
            continue
        while result_axis in index.inserted:
            items.append(None)
            result_axis += 1
        end = start + size * step
        items.append(slice(start, end if end >= 0 else None, step))
        result_axis += 1
    while result_axis in index.inserted:
        items.append(None)
        result_axis += 1
    return tuple(items)


def is_view_of(name: str, x: Any, others: Sequence[Any], arguments: Mapping[str, Any]) -> bool:
    """Returns whether the result of a function is a view in NumPy.

    Args:
        name: the name of the function, one of `VIEWS`.
        x: its first operand.
        others: its other operands; None for one left out.
        arguments: its parameters; the subscripts of ``einsum`` as of `subscripts.of_one_operand`.
    """
    if name == "einsum":
        taken, _, kept = str(arguments["subscripts"]).partition("->")
        return {*taken} == {*kept} and all(other is None for other in others)
    if name in ("real", "imag"):
        return bool(x.dtype.kind == "c")
    return True


def is_contiguous(x: Any) -> bool:
    """Returns whether the elements of an array are in row-major order in NumPy, without gaps."""
    if isinstance(x, np.ndarray):
        return x.flags.c_contiguous
    is_plain = not x._steps and x._store.layout is None
    return is_plain or layout_of(x).flags.c_contiguous


def can_be_reshaped(x: Any, shape: tuple[int, ...]) -> bool:
    """Returns whether NumPy gives an array another shape without a copy."""
    if is_contiguous(x):
        return True
    try:
        np.reshape(layout_of(x), shape, copy=False)
    except ValueError:
        return False
    return True


def axes_in_order(x: Any, order: str | None, allowed: str = "CFAK") -> tuple[int, ...] | None:
    """Returns the axes of an array in the sequence in which NumPy reads its elements; None for the row-major one.

    Args:
        x: an array on the mesh, which is in memory as `layout_of` says, or one of this process.
        order: the order; None for ``"C"``.
        allowed: the orders that the function takes.

    Raises:
        TypeError: for an order that is no text.
        ValueError: for an unknown one.
    """
    if not isinstance(order, str | None):
        raise TypeError(f"order={order!r}; give one of: {', '.join(allowed)}")
    upper = "C" if order is None else order.upper()
    if upper not in allowed or len(upper) != 1:
        raise ValueError(f"order={order!r} is not one of: {', '.join(allowed)}")
    if upper == "F":
        return tuple(reversed(range(x.ndim)))
    if upper == "C" or not (isinstance(x, np.ndarray) or hasattr(x, "_store")) or is_contiguous(x):
        return None
    layout = x if isinstance(x, np.ndarray) else layout_of(x)
    if layout.flags.f_contiguous:
        return tuple(reversed(range(x.ndim)))
    return _axes_by_strides(layout) if upper == "K" else None


def _axes_by_strides(layout: NDArray) -> tuple[int, ...]:
    """Returns the axes from the largest stride to the smallest, as iterators of NumPy sort them."""
    strides = [0 if size == 1 else abs(stride) for size, stride in zip(layout.shape, layout.strides, strict=True)]
    axes = list[int]()  # from the smallest
    for axis in reversed(range(layout.ndim)):
        position = len(axes)
        for i in reversed(range(len(axes))):
            if strides[axis] and strides[axes[i]]:  # an axis without a stride stays where it is
                if strides[axis] >= strides[axes[i]]:
                    break
                position = i
        axes.insert(position, axis)
    return tuple(reversed(axes))


# The layout is an array of NumPy that no element of is ever read: its memory is that of one element. NumPy's functions
# say by it what is contiguous, what shares memory and what a reshape copies.
def layout_of(array: Any) -> NDArray:
    """Returns an array of NumPy with the strides and the offset that an array would have there; has no values."""
    base, steps = array._located
    layout: NDArray | None = base.layout
    if layout is None:
        base_type = base.type
        strides = _row_major(base_type.shape, base_type.dtype.itemsize)
        base.layout = layout = np.lib.stride_tricks.as_strided(np.empty(1, base_type.dtype), base_type.shape, strides)
    for step in steps:
        layout = step.of_layout(layout)
    return layout


@lru_cache(maxsize=1024)
def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = [itemsize]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * max(size, 1))
    return tuple(reversed(strides))[: len(shape)] if shape else ()
