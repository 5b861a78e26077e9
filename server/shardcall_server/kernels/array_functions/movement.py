"""Rows of the table for functions that move elements: indexing, reshaping, joining, padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions import checks, layout_rules
from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.exchanges import CONCATENATE, FLIP, PAD
from shardcall_server.kernels.array_functions.extracts import DIAGONAL, TRACE
from shardcall_server.kernels.array_functions.resizing import REPEAT, RESHAPE
from shardcall_server.kernels.array_functions.row import AlignedAxes, Body, CallShapes, ResultBlock, Row
from shardcall_server.kernels.core.bits import moved_in_block
from shardcall_server.kernels.core.element_types import convert, narrow, widen
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics.ordering import truth


def _move(move: Callable[..., jax.Array]) -> Body:
    """Returns the body that moves the elements of all operands, in the type of the result."""

    def body(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
        arrays = [convert(array, block.dtype) for array in operands if array is not None]
        return moved_in_block(lambda *parts: move(block, *parts), *arrays)

    return body


def _others(axes: Sequence[int], ndim: int) -> list[int]:
    return [i for i in range(ndim) if i not in axes]


def _axes(call: CallShapes, name: str = "axis", ndim: int | None = None) -> tuple[int, ...]:
    return checks.axes(call.parameters, name, len(call.x) if ndim is None else ndim)


def _origins_of(targets: Sequence[int | None], ndim: int) -> tuple[int | None, ...]:
    return tuple(targets.index(i) if i in targets else None for i in range(ndim))


def _reshape_targets(call: CallShapes) -> list[int | None]:
    """Returns the axes of the result for those at both ends of x that keep their sizes and their neighbours."""
    x, shape = call.x, call.shape
    min_ndim = min(len(x), len(shape))
    front = next((i for i in range(min_ndim) if x[i] != shape[i]), min_ndim)
    back = next((i for i in range(min_ndim - front) if x[-1 - i] != shape[-1 - i]), min_ndim - front)
    if math.prod(x[front : len(x) - back]) != math.prod(shape[front : len(shape) - back]):  # of arrays without elements
        front = back = 0
    more = len(shape) - len(x)
    return [i if i < front else i + more if i >= len(x) - back else None for i in range(len(x))]


def _reshape_origins(call: CallShapes) -> tuple[int | None, ...]:
    targets = _reshape_targets(call)
    origins = list(_origins_of(targets, len(call.shape)))
    if None in targets and None in origins:
        origins[origins.index(None)] = targets.index(None)
    return tuple(origins)


def _expand_dims_targets(call: CallShapes) -> list[int | None]:
    return list(_others(_axes(call, "axis", len(call.shape)), len(call.shape)))


def _squeeze_targets(call: CallShapes) -> list[int | None]:
    kept = _others(layout_rules.squeezed(call.x, call.parameters), len(call.x))
    return [kept.index(i) if i in kept else None for i in range(len(call.x))]


def _broadcast_targets(call: CallShapes) -> list[int | None]:
    behind = len(call.shape) - len(call.x)
    return [i + behind if size == call.shape[i + behind] else None for i, size in enumerate(call.x)]


def _but_axes(call: CallShapes) -> list[int | None]:
    """Returns the axes of x, None for those that the parameter ``axis`` names."""
    along = _axes(call)
    return [None if i in along else i for i in range(len(call.x))]


def _every(call: CallShapes) -> tuple[int | None, ...]:
    return tuple(range(len(call.shape)))


def _of_axis(call: CallShapes) -> tuple[int | None, ...]:
    """Returns the origins of a result of x's axes; of the flattened one the first axis, where there is one."""
    return _every(call) if call["axis"] is not None else (0 if call.x else None,)


def _concatenate_aligned(call: CallShapes) -> AlignedAxes:
    if call["axis"] is None:
        return tuple((None,) * len(required(shape)) for shape in call.shapes)
    return (tuple(_but_axes(call)),) * len(call.shapes)


def _concatenate(block: ResultBlock, *arrays: jax.Array) -> jax.Array:
    if block["axis"] is None:
        return jnp.concatenate([array.reshape(-1) for array in arrays])
    return jnp.concatenate(arrays, axis=block["axis"])


def _stack_aligned(call: CallShapes) -> AlignedAxes:
    return (tuple(_others(_axes(call, "axis", len(call.shape)), len(call.shape))),) * len(call.shapes)


def _tile_targets(call: CallShapes) -> list[int | None]:
    reps, ndim = checks.integers(call.parameters, "reps"), len(call.shape)
    copies = (1,) * (ndim - len(reps)) + reps
    return [i if copies[i] == 1 else None for i in range(ndim - len(call.x), ndim)]


def _tile_origins(call: CallShapes) -> tuple[int | None, ...]:
    new = len(call.shape) - len(call.x)
    return (*[None] * new, *range(len(call.x)))


def _repeat_targets(call: CallShapes) -> list[int | None]:
    return [None] * len(call.x) if call["axis"] is None else _but_axes(call)


def _triangle_targets(call: CallShapes) -> list[int | None]:
    return [1] if len(call.x) == 1 else list(range(len(call.x)))


def _triangle(*, is_upper: bool) -> Body:
    def move(block: ResultBlock, bits: jax.Array) -> jax.Array:
        rows, columns = block.call.shape[-2:]
        k = max(-rows - 1, min(block["k"], columns + 1))
        ndim = len(block.shape)
        above = block.index(ndim - 1) - block.index(ndim - 2)
        return jnp.where(above >= k if is_upper else above <= k, bits, jnp.zeros((), bits.dtype))

    return _move(move)


def _diagonal_targets(call: CallShapes) -> list[int | None]:
    kept = _others(layout_rules.diagonal_axes(call.x, call.parameters), len(call.x))
    return [kept.index(i) if i in kept else None for i in range(len(call.x))]


def _diagonal_of(block: ResultBlock, bits: jax.Array) -> jax.Array:
    rows, columns = layout_rules.diagonal_axes(block.call.x, block.call.parameters)
    sizes = block.call.x[rows], block.call.x[columns]
    offset = max(-sizes[0], min(block["offset"], sizes[1]))
    count = max(0, min(sizes[0] + min(offset, 0), sizes[1] - max(offset, 0)))
    matrices = jnp.moveaxis(bits, (rows, columns), (-2, -1))
    first = lax.slice_in_dim(matrices, max(-offset, 0), max(-offset, 0) + count, axis=-2)
    first = lax.slice_in_dim(first, max(offset, 0), max(offset, 0) + count, axis=-1)
    taken: jax.Array = jnp.diagonal(first, axis1=-2, axis2=-1)
    return taken


def _trace(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    diagonal = _diagonal_of(block, required(operands[0]))
    if block.dtype == np.bool_:
        return jnp.any(truth(diagonal), axis=-1)
    wide = widen(diagonal, block.dtype)
    return narrow(jnp.sum(wide, axis=-1, dtype=wide.dtype), block.dtype)


def _astype(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x = required(operands[0])
    if block.dtype == np.bool_:
        return truth(x)
    if np.dtype(x.dtype).kind == "c" and block.dtype.kind != "c":
        x = lax.real(x)
    return convert(x, block.dtype)


def _pad_targets(call: CallShapes) -> list[int | None]:
    return [None if sum(rows) else i for i, rows in enumerate(layout_rules.margins(call.x, call.parameters))]


def _pad(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, fill = required(operands[0]), operands[1]
    rows = layout_rules.margins(block.call.x, block.call.parameters)
    if block["mode"] != "constant" and rows:  # jnp.pad takes no scalars
        return moved_in_block(lambda bits: jnp.pad(bits, rows, mode=block["mode"]), x)
    margins = [(before, behind, 0) for before, behind in rows]
    value = jnp.zeros((), x.dtype) if fill is None else convert(fill, block.dtype)
    return moved_in_block(lambda bits, of_fill: lax.pad(bits, of_fill, margins), x, value)


def _one(targets: Callable[[CallShapes], Sequence[int | None]], others: int = 0) -> Callable[[CallShapes], AlignedAxes]:
    """Returns the alignment of x to some axes of the result, and of further operands, scalars, to none."""
    return lambda call: (tuple(targets(call)), *[()] * others)


def _row(name: str, body: Body, targets: Callable[[CallShapes], Sequence[int | None]], **more: Any) -> Row:
    return Row(name, body, aligned=_one(targets), **more)


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        _row(
            "reshape",
            _move(lambda block, bits: bits.reshape(block.shape)),
            _reshape_targets,
            origins=_reshape_origins,
            exchange=RESHAPE,
        ),
        _row(
            "expand_dims",
            _move(lambda block, bits: bits.reshape(block.shape)),
            _expand_dims_targets,
            counts_result=True,
        ),
        _row("squeeze", _move(lambda block, bits: bits.reshape(block.shape)), _squeeze_targets),
        _row(
            "broadcast_to",
            _move(lambda block, bits: jnp.broadcast_to(bits, block.shape)),
            _broadcast_targets,
            is_free=True,
        ),
        _row(
            "flip",
            _move(lambda block, bits: jnp.flip(bits, _axes(block.call))),
            _but_axes,
            origins=_every,
            exchange=FLIP,
        ),
        Row("concatenate", _move(_concatenate), aligned=_concatenate_aligned, origins=_of_axis, exchange=CONCATENATE),
        Row(
            "stack",
            _move(lambda block, *bits: jnp.stack(bits, axis=block["axis"])),
            aligned=_stack_aligned,
            counts_result=True,
        ),
        _row("astype", _astype, lambda call: range(len(call.x))),
        _row("tile", _move(lambda block, bits: jnp.tile(bits, block["reps"])), _tile_targets, origins=_tile_origins),
        _row(
            "repeat",
            _move(lambda block, bits: jnp.repeat(bits, block["repeats"], block["axis"])),
            _repeat_targets,
            origins=_of_axis,
            exchange=REPEAT,
        ),
        *(_row(name, _triangle(is_upper=name == "triu"), _triangle_targets, is_free=True) for name in ("tril", "triu")),
        _row("diagonal", _move(_diagonal_of), _diagonal_targets, exchange=DIAGONAL),
        _row("trace", _trace, _diagonal_targets, reproducibility=Reproducibility.INTEGERS, exchange=TRACE),
        Row("pad", _pad, aligned=_one(_pad_targets, 1), origins=_every, exchange=PAD),
    )
