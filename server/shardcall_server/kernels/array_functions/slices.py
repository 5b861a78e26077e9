"""Rows of the table for slices: reads of slices, and copies of arrays with new values in a slice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import reduce
from operator import and_

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions import checks, layout_rules
from shardcall_core.layouts.layout import MeshAxes, format_spec, required
from shardcall_server.kernels.array_functions.exchanged_axes import can_exchange
from shardcall_server.kernels.array_functions.row import (
    AlignedAxes,
    CallShapes,
    LocalSpecs,
    ResultBlock,
    Row,
    RowExchange,
    call_of,
)
from shardcall_server.kernels.array_functions.sliced_axes import AssignedAxis, SlicedAxis, lowest_index
from shardcall_server.kernels.core.bits import moved, moved_in_block
from shardcall_server.kernels.core.blockwise import AlignedAxis, Blockwise
from shardcall_server.kernels.core.element_types import convert
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.numerics.ordering import truth
from shardcall_server.kernels.stencils.exchange import ShardedAxis

_SHORT_PART = 4
"""The part of an array that a slice is less than if it is replaced where it is: 1 / this."""


def _targets(call: CallShapes) -> list[int | None]:
    """Returns for each axis of x the axis of the slice that it becomes; None for those dropped."""
    slice_shape = layout_rules.slice_shape(call.x, call.parameters)
    dropped = checks.axes(call.parameters, "dropped", len(call.x))
    new = checks.axes(call.parameters, "inserted", len(slice_shape))
    kept = (i for i in range(len(slice_shape)) if i not in new)
    return [None if i in dropped else next(kept) for i in range(len(call.x))]


def _is_short(call: CallShapes) -> bool:
    """Returns whether values in a slice are written where they are, if all of it is in one block."""
    return bool(math.prod(call["sizes"]) * _SHORT_PART < math.prod(call.x))


def is_short_write(problem: Problem) -> bool:
    """Returns whether a call of `setitem` writes into its array, where no other call needs it as it was."""
    return _is_short(call_of(problem))


def _is_complete(call: CallShapes, axis: int) -> bool:
    return bool(call["steps"][axis] == 1 and call["sizes"][axis] == call.x[axis])


def _is_kept(call: CallShapes, axis: int) -> bool:
    """Returns True if an axis of x is an axis of the slice, with all of its elements; one of size 1 may be dropped."""
    return _is_complete(call, axis) and _targets(call)[axis] is not None


def _getitem_aligned(call: CallShapes) -> AlignedAxes:
    targets = _targets(call)
    return tuple(target if _is_complete(call, i) else None for i, target in enumerate(targets)), (None,)


def _getitem_origins(call: CallShapes) -> tuple[int | None, ...]:
    targets = _targets(call)
    return tuple(targets.index(i) if i in targets else None for i in range(len(call.shape)))


def _sliced_axes(call: CallShapes, alongs: Sequence[ShardedAxis]) -> list[SlicedAxis]:
    """Returns the axes of x that are sliced."""
    targets, starts = _targets(call), call.constant(1)
    return [
        SlicedAxis(
            along,
            call["sizes"][along.axis],
            call["steps"][along.axis],
            targets[along.axis] is not None,
            None if starts is None else int(starts[along.axis]),
        )
        for along in alongs
        if not _is_kept(call, along.axis)
    ]


def _getitem_of(alongs: Sequence[ShardedAxis], block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, slices = required(operands[0]), _sliced_axes(block.call, alongs)
    starts = _starts(block.call, operands)

    def move(bits: jax.Array) -> jax.Array:
        # Axes that are not sharded are sliced first, so that less is sent.
        for axis_slice in sorted(slices, key=lambda axis_slice: axis_slice.along.devices > 1):
            bits = axis_slice(bits, starts[axis_slice.along.axis])
        return bits.reshape(block.shape)

    is_alone = all(axis_slice.along.devices == 1 for axis_slice in slices)
    return moved_in_block(move, x) if is_alone else moved(move, x)


def _starts(call: CallShapes, operands: Sequence[jax.Array | None]) -> Sequence[jax.Array | int] | jax.Array:
    """Returns the starts of a slice, the last operand; integers if they are known."""
    constant = call.constant(len(operands) - 1)
    return required(operands[-1]) if constant is None else [int(start) for start in constant]


def _getitem_blockwise(problem: Problem) -> Blockwise | None:
    call, x_spec, spec = call_of(problem), required(problem.in_specs[0]), required(problem.out_specs[0])
    targets, starts = _targets(call), call.constant(1)
    aligned: list[AlignedAxis | None] = []
    for axis, (target, names) in enumerate(zip(targets, x_spec, strict=True)):
        if not names:
            aligned.append(None)
        elif starts is None or target is None or call["steps"][axis] != 1 or spec[target] != names:
            return None
        else:
            start = lowest_index(int(starts[axis]), call.x[axis], call["sizes"][axis], 1)
            aligned.append(AlignedAxis(target, start))
    if sum(map(bool, spec)) != sum(map(bool, x_spec)):
        return None
    alongs = [ShardedAxis(i, (), MeshAxes(()), n, n) for i, n in enumerate(call.x) if not x_spec[i]]
    slices = _sliced_axes(call, alongs)

    def body(shape: tuple[int, ...], _: Sequence[int | jax.Array], arrays: Sequence[jax.Array]) -> jax.Array:
        def move(bits: jax.Array) -> jax.Array:
            for axis_slice in slices:
                bits = axis_slice(bits, required(axis_slice.start))
            return bits.reshape(shape)

        return moved_in_block(move, arrays[0])

    return Blockwise((x_spec, ((),)), (tuple(aligned), (None,)), body, takes_offsets=False)


def _getitem(block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    no_mesh = MeshAxes(())
    return _getitem_of([ShardedAxis(i, (), no_mesh, n, n) for i, n in enumerate(block.call.x)], block, operands)


def _getitem_specs(problem: Problem) -> LocalSpecs | str:
    spec, call = required(problem.in_specs[0]), call_of(problem)
    slices = _sliced_axes(call, _alongs(problem))
    if not all(axis_slice.is_cheap for axis_slice in slices) and can_exchange(problem, _getitem_aligned(call)[0]):
        return "the devices would send as many rows as their blocks have, and exchange another axis in less time"
    origins = _getitem_origins(call)
    return LocalSpecs((spec, ((),)), tuple(() if origin is None else spec[origin] for origin in origins))


def _alongs(problem: Problem) -> list[ShardedAxis]:
    x, spec = required(problem.operands[0]), required(problem.in_specs[0])
    return [ShardedAxis.of(x, spec, axis, problem.mesh) for axis in range(x.ndim)]


def _value_targets(call: CallShapes) -> list[int | None]:
    """Returns for each axis of the values the axis of x along which they are assigned; None for those of one row."""
    shape, targets = required(call.shapes[1]), _targets(call)
    more = len(layout_rules.slice_shape(call.x, call.parameters)) - len(shape)
    return [targets.index(i + more) if size != 1 and i + more in targets else None for i, size in enumerate(shape)]


def _setitem_aligned(call: CallShapes) -> AlignedAxes:
    of_values = [None if axis is None or not _is_complete(call, axis) else axis for axis in _value_targets(call)]
    return tuple(range(len(call.x))), tuple(of_values), (None,)


def _setitem_of(
    alongs: Mapping[int, ShardedAxis],
    block: ResultBlock,
    operands: Sequence[jax.Array | None],
    aligned: AbstractSet[int] = frozenset(),
) -> jax.Array:
    """Returns a block of x with the values in it.

    Args:
        alongs: by axis of x, the axes along which the values are sharded as x, as the values have them.
        block: the block.
        operands: the blocks of x, the values and the starts.
        aligned: the axes of x along which the values are those of the block's elements.
    """
    x, values, starts = required(operands[0]), required(operands[1]), _starts(block.call, operands)
    call, axes = block.call, _value_targets(block.call)
    if 0 in call["sizes"]:
        return x
    sizes = dict(zip(axes, values.shape, strict=True))
    assigned = [
        AssignedAxis(axis, call.x[axis], call["sizes"][axis], call["steps"][axis], alongs.get(axis))
        for axis in range(len(call.x))
        if not _is_complete(call, axis)
    ]
    # A short slice that the block has completely, in steps of 1, is replaced where it is. Else elements are chosen: the
    # compiler does that in one pass with what computes the values.
    replaced = [item for item in assigned if item.step == 1 and isinstance(block.offsets[item.axis], int)]
    if not _is_short(call) and all(isinstance(start, int) for start in starts):
        replaced = []
    chosen = [item for item in assigned if item not in replaced]

    def move(bits: jax.Array, of_values: jax.Array) -> jax.Array:
        of_values = of_values.reshape([sizes.get(axis, 1) for axis in range(len(call.x))])
        corner, shape = [jnp.zeros((), np.int64)] * len(call.x), [*block.shape]
        for item in replaced:
            corner[item.axis], shape[item.axis] = jnp.asarray(item.lowest(starts[item.axis]), np.int64), item.count
        are_assigned = []
        for item in chosen:
            first, lowest = block.offsets[item.axis], item.lowest(starts[item.axis])
            are_assigned.append(item.is_assigned(block.shape, first, lowest))
            if item.axis in axes and item.axis not in aligned:
                of_values = item.values_of(of_values, block.shape[item.axis], first, lowest)
        of_slice = jnp.broadcast_to(of_values, shape)
        if chosen:
            old = lax.dynamic_slice(bits, corner, shape) if replaced else bits
            of_slice = jnp.where(reduce(and_, are_assigned), of_slice, old)
        return lax.dynamic_update_slice(bits, of_slice, corner) if replaced else of_slice

    arrays = x, _as_type(values, block.dtype)
    is_alone = all(item.along is None or item.along.devices == 1 for item in chosen)
    return moved_in_block(move, *arrays) if is_alone else moved(move, *arrays)


def _setitem_blockwise(problem: Problem) -> Blockwise | None:
    call, x_spec = call_of(problem), required(problem.in_specs[0])
    starts = call.constant(2)
    if starts is None or problem.out_specs[0] != x_spec or 0 in call["sizes"]:
        return None
    aligned: list[AlignedAxis | None] = []
    needs: list[tuple[str, ...]] = []
    for target in _value_targets(call):
        names = () if target is None else x_spec[target]
        needs.append(names)
        if target is None or not names:
            aligned.append(None)
        elif call["steps"][target] != 1:
            return None
        else:
            aligned.append(
                AlignedAxis(target, -lowest_index(int(starts[target]), call.x[target], call["sizes"][target], 1))
            )
    along_values = {item.axis for item in aligned if item is not None}

    def body(shape: tuple[int, ...], offsets: tuple[int | jax.Array, ...], arrays: Sequence[jax.Array]) -> jax.Array:
        block = ResultBlock(call, problem.results[0].dtype, shape, offsets)
        return _setitem_of({}, block, [*arrays[:2], None], along_values)

    return Blockwise(
        (x_spec, tuple(needs), ((),)),
        (tuple(AlignedAxis(i, 0) if names else None for i, names in enumerate(x_spec)), tuple(aligned), (None,)),
        body,
    )


def _as_type(values: jax.Array, dtype: np.dtype) -> jax.Array:
    return truth(values) if dtype == np.bool_ else convert(values, dtype)


def _value_alongs(problem: Problem) -> dict[int, ShardedAxis]:
    """Returns the sliced axes of x along which the values are sharded as x."""
    x_spec, spec, values = required(problem.in_specs[0]), required(problem.in_specs[1]), required(problem.operands[1])
    call = call_of(problem)
    return {
        target: replace(ShardedAxis.of(values, spec, axis, problem.mesh), axis=target)
        for axis, target in enumerate(_value_targets(call))
        if target is not None and not _is_complete(call, target) and spec[axis] and spec[axis] == x_spec[target]
    }


def _setitem_specs(problem: Problem) -> LocalSpecs | str:
    call, (x_spec, spec) = call_of(problem), map(required, problem.in_specs[:2])
    alongs, needs = _value_alongs(problem), []
    for axis, target in enumerate(_value_targets(call)):
        is_kept = target is not None and (target in alongs or _is_complete(call, target))
        needs.append(x_spec[target] if is_kept and target is not None else ())
        if spec[axis] and spec[axis] != needs[-1]:
            return f"the values are sharded as {format_spec(spec)}, and it serves values that are sharded as x"
    if any(call["steps"][axis] != 1 for axis in alongs):
        return "the values are sharded along an axis with a step, and it serves steps of 1"
    return LocalSpecs((x_spec, tuple(needs), ((),)), x_spec)


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    return (
        Row(
            "getitem",
            _getitem,
            aligned=_getitem_aligned,
            origins=_getitem_origins,
            blockwise=_getitem_blockwise,
            exchange=RowExchange(
                "The devices send each other the rows that their blocks of the slice lack. Of a slice that is shorter "
                "than what they would send, each sends what it has, and the sum of these is the slice.",
                _getitem_specs,
                lambda problem, block, operands: _getitem_of(_alongs(problem), block, operands),
            ),
        ),
        Row(
            "setitem",
            lambda block, operands: _setitem_of({}, block, operands),
            aligned=_setitem_aligned,
            blockwise=_setitem_blockwise,
            exchange=RowExchange(
                "The devices send each other the values that their blocks of x lack, and nothing of x. Serves values "
                "that are sharded as x, in steps of 1.",
                _setitem_specs,
                lambda problem, block, operands: _setitem_of(_value_alongs(problem), block, operands),
            ),
        ),
    )
