"""Rows of the table for elements at indices, which are taken, or replaced in a copy of the array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions import checks
from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.row import AlignedAxes, CallShapes, IndexCheck, ResultBlock, Row
from shardcall_server.kernels.core.bits import moved_in_block
from shardcall_server.kernels.core.element_types import convert, narrow, widen
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics.ordering import truth

_OF_BOOL = {"add": "max", "multiply": "min"}


def _converted(values: jax.Array, dtype: np.dtype) -> jax.Array:
    """Returns values in another element type as an assignment of NumPy converts them."""
    if dtype == np.bool_:
        return truth(values)
    return convert(values, dtype)


def _axes(call: CallShapes) -> tuple[int, ...]:
    return checks.axes(call.parameters, "axes", len(call.x))


def _counts(first_index: int) -> Callable[[CallShapes], tuple[IndexCheck, ...]]:
    """Returns the checks of the index operands, which begin with the operand ``first_index``."""
    return lambda call: tuple(IndexCheck(first_index + i, _size_of(axis)) for i, axis in enumerate(_axes(call)))


def _size_of(axis: int) -> Callable[[CallShapes], int]:
    return lambda call: call.x[axis]


def _positions(call: CallShapes, indices: Sequence[tuple[int, ...] | None]) -> tuple[int, list[int]]:
    """Returns the number of axes that the indices have, and the position of the other axes of x in x[indices]."""
    count = max(len(shape or ()) for shape in indices)
    others = len(call.x) - len(_axes(call))
    return count, [i if i < call["position"] else i + count for i in range(others)]


def _others(call: CallShapes) -> list[int]:
    return [i for i in range(len(call.x)) if i not in _axes(call)]


def _take_at_aligned(call: CallShapes) -> AlignedAxes:
    indices = call.shapes[1:]
    count, positions = _positions(call, indices)
    of_x = dict(zip(_others(call), positions, strict=True))
    aligned: list[tuple[int | None, ...]] = [tuple(of_x.get(i) for i in range(len(call.x)))]
    for shape in indices:
        first = call["position"] + count - len(shape or ())
        aligned.append(
            tuple(first + i if size == call.shape[first + i] else None for i, size in enumerate(shape or ()))
        )
    return tuple(aligned)


def _key(call: CallShapes, indices: Sequence[jax.Array]) -> tuple[slice | jax.Array, ...]:
    """Returns the index of x with nonnegative indices along its indexed axes."""
    key: list[slice | jax.Array] = [slice(None)] * len(call.x)
    for axis, index in zip(_axes(call), indices, strict=True):
        key[axis] = _from_first(index, call.x[axis])
    return tuple(key)


def _from_first(index: jax.Array, count: int) -> jax.Array:
    """Returns indices counted from the first element."""
    wide = widen(index, np.dtype(index.dtype)).astype(np.int64)
    return jnp.where(wide < 0, wide + count, wide)


def _numpys_position(axes: Sequence[int]) -> int:
    """Returns the position at which NumPy puts the axes of the indices: 0 if the indexed axes are not adjacent."""
    return axes[0] if list(axes) == list(range(axes[0], axes[0] + len(axes))) else 0


def _moved_indices(array: jax.Array, count: int, source: int, target: int) -> jax.Array:
    return jnp.moveaxis(array, range(source, source + count), range(target, target + count))


def _selected(x: jax.Array, key: Sequence[slice | jax.Array]) -> jax.Array:
    """Returns the slice that an index along some axes selects."""
    for axis in reversed(range(x.ndim)):
        if not isinstance(index := key[axis], slice):
            x = lax.dynamic_index_in_dim(x, index, axis, keepdims=False)
    return x


def _take_at(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, *indices = map(required, operands)
    call = block.call
    key, count = _key(call, indices), max(index.ndim for index in indices)

    def move(bits: jax.Array) -> jax.Array:
        if 0 in block.shape:
            return jnp.zeros(block.shape, bits.dtype)
        if count == 0:
            return _selected(bits, key)
        taken = bits.at[key].get(mode="clip")
        return _moved_indices(taken, count, _numpys_position(_axes(call)), call["position"])

    return moved_in_block(move, x)


def _put_at_aligned(call: CallShapes) -> AlignedAxes:
    values, indices = call.shapes[1] or (), call.shapes[2:]
    count, positions = _positions(call, indices)
    of_result = dict(zip(positions, _others(call), strict=True))
    before = len(positions) + count - len(values)
    of_values: list[int | None] = []
    for i, size in enumerate(values):
        axis = of_result.get(before + i)
        of_values.append(axis if axis is not None and size == call.x[axis] else None)
    of_x = tuple(None if i in _axes(call) else i for i in range(len(call.x)))
    return of_x, tuple(of_values), *((None,) * len(shape or ()) for shape in indices)


def _last_only(key: tuple[slice | jax.Array, ...], call: CallShapes) -> tuple[slice | jax.Array, ...]:
    """Returns a key that keeps the last of equal indices, as NumPy assigns; the others become out of range."""
    axes = _axes(call)
    indices = jnp.broadcast_arrays(*(item for item in key if not isinstance(item, slice)))
    flat = jnp.zeros(indices[0].shape, np.int64)
    for axis, index in zip(axes, indices, strict=True):
        flat = flat * call.x[axis] + index
    number = jnp.arange(flat.size).reshape(flat.shape)
    last = jnp.full(math.prod(call.x[axis] for axis in axes), -1, np.int64).at[flat].max(number, mode="drop")
    is_last = last.at[flat].get(mode="clip") == number
    first = jnp.where(is_last, indices[0], call.x[axes[0]])
    return tuple(first if i == axes[0] else item for i, item in enumerate(key))


def _replaced(x: jax.Array, values: jax.Array, key: Sequence[slice | jax.Array]) -> jax.Array:
    """Returns x with values in the slice that an index along some axes selects, which is replaced where it is."""
    kept = [n for n, item in zip(x.shape, key, strict=True) if isinstance(item, slice)]
    shape = [n if isinstance(item, slice) else 1 for n, item in zip(x.shape, key, strict=True)]
    corner = [jnp.zeros((), np.int64) if isinstance(item, slice) else item for item in key]

    def replace(elements: jax.Array, new: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(elements, jnp.broadcast_to(new, kept).reshape(shape), corner)

    return moved_in_block(replace, x, values)


def _put_at(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, values, *indices = map(required, operands)
    call, axes = block.call, _axes(block.call)
    if 0 in block.shape or any(0 in index.shape for index in indices):
        return x
    key, count = _key(call, indices), max(index.ndim for index in indices)
    if count == 0 and call["mode"] == "set":
        return _replaced(x, _converted(values, block.dtype), key)
    kept = [size for i, size in enumerate(block.shape) if i not in axes]
    shape = jnp.broadcast_shapes(*(index.shape for index in indices))
    new = jnp.broadcast_to(
        _converted(values, block.dtype), (*kept[: call["position"]], *shape, *kept[call["position"] :])
    )
    if call["mode"] == "set":
        key = _last_only(key, call)

    def put(bits: jax.Array, of_new: jax.Array) -> jax.Array:
        of_new = _moved_indices(of_new, count, call["position"], _numpys_position(axes))
        mode = _OF_BOOL.get(call["mode"], call["mode"]) if block.dtype == np.bool_ else call["mode"]
        updated: jax.Array = getattr(bits.at[key], mode)(of_new, mode="drop")
        return updated

    if call["mode"] == "set":
        return moved_in_block(put, x, new)
    if block.dtype == np.bool_:  # a sum is an or, and a product an and; XLA scatters neither
        return put(x.astype(np.uint8), new.astype(np.uint8)) != 0
    return narrow(put(widen(x, block.dtype), widen(new, block.dtype)), block.dtype)


def _put_aligned(call: CallShapes) -> AlignedAxes:
    axis, ndim = call["axis"] % len(call.x), len(call.x)

    def aligned(shape: tuple[int, ...]) -> tuple[int | None, ...]:
        axes = range(ndim - len(shape), ndim)
        return tuple(i if i != axis and size == call.x[i] else None for i, size in zip(axes, shape, strict=True))

    return tuple(range(ndim)), *(aligned(shape or ()) for shape in call.shapes[1:])


def _put_along(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    """Puts the elements whose indices are in the block, which may be a part of the axis."""
    x, values, indices = map(required, operands)
    axis = block["axis"]
    size, count = block.shape[axis], indices.shape[axis]
    if 0 in block.shape or not count:
        return x
    shape = [count if i == axis else n for i, n in enumerate(block.shape)]
    here = jnp.broadcast_to(_from_first(indices, block.call.x[axis]), shape) - block.offsets[axis]
    here = jnp.moveaxis(jnp.where((here >= 0) & (here < size), here, size), axis, -1)
    number = lax.broadcasted_iota(np.int64, here.shape, here.ndim - 1)
    rows = [lax.broadcasted_iota(np.int64, here.shape, i) for i in range(here.ndim - 1)]
    last = jnp.full((*here.shape[:-1], size), -1, np.int64).at[(*rows, here)].max(number, mode="drop")
    last = jnp.moveaxis(last, -1, axis)
    new = jnp.broadcast_to(_converted(values, block.dtype), shape)

    def put(bits: jax.Array, of_new: jax.Array) -> jax.Array:
        return jnp.where(last < 0, bits, jnp.take_along_axis(of_new, jnp.maximum(last, 0), axis, mode="clip"))

    return moved_in_block(put, x, new)


def _flatnonzero(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x = required(operands[0])
    nonzero = truth(x).reshape(-1)
    return jnp.flatnonzero(nonzero, size=block["size"], fill_value=0).astype(block.dtype)


def _aligned_to_none(call: CallShapes) -> AlignedAxes:
    return ((None,) * len(call.x),)


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        Row("take_at", _take_at, aligned=_take_at_aligned, checks=_counts(1)),
        Row(
            "put_at",
            _put_at,
            aligned=_put_at_aligned,
            origins=lambda call: tuple(range(len(call.x))),
            checks=_counts(2),
            reproducibility=Reproducibility.INTEGERS,
        ),
        Row(
            "put_along_axis",
            _put_along,
            aligned=_put_aligned,
            checks=(IndexCheck(2, lambda call: call.x[call["axis"]]),),
        ),
        Row(
            "flatnonzero",
            _flatnonzero,
            aligned=_aligned_to_none,
            origins=lambda call: (0 if call.x else None,),
            needs_complete_axes=True,
        ),
    )
