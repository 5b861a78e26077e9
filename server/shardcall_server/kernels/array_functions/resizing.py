"""The strategy ``exchange`` of `repeat` and `reshape`: blocks of another size, of the same elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.exchanged_axes import can_exchange
from shardcall_server.kernels.array_functions.exchanges import TOO_MANY, of_result, others, sharded_axes
from shardcall_server.kernels.array_functions.moved_rows import MovedRows
from shardcall_server.kernels.array_functions.row import LocalSpecs, ResultBlock, RowExchange
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import rows
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.stencils.exchange import ShardedAxis


def _repeated_rows(problem: Problem) -> MovedRows:
    """Returns the rows that are repeated in each block of the result."""
    along, times = sharded_axes(problem)[problem.parameters.axis], problem.parameters.repeats
    block = of_result(problem, along, along.axis).block
    firsts = [min(device * block // times, along.rows) for device in range(along.devices)]
    return MovedRows.of(along, firsts, -(-block // times) + 1, 0)


def _repeat_specs(problem: Problem) -> LocalSpecs | str:
    spec, axis = required(problem.in_specs[0]), problem.parameters.axis
    if axis is None:
        return "x is flattened, and it serves one axis"
    if not problem.results[0].shape[axis]:
        return "the result has no rows"
    if not _repeated_rows(problem).has_margins and can_exchange(problem, others((axis,), len(spec))):
        return TOO_MANY
    return LocalSpecs((spec,), spec)


def _repeat(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    axis, times, length = block["axis"], block["repeats"], block.shape[block["axis"]]
    first = (block.offsets[axis] % times) if times > 1 else 0
    needed = _repeated_rows(problem)

    def move(bits: jax.Array) -> jax.Array:
        return rows(jnp.repeat(needed(bits), times, axis), first, length, axis)

    return moved(move, required(operands[0]))


REPEAT = RowExchange(
    "The devices send each other the rows that their blocks of the result repeat and that they lack.",
    _repeat_specs,
    _repeat,
)


class _BlockReshape:
    """A reshape of blocks, in which the axes between the leading and trailing axes of both shapes are joined.

    Attributes:
        front: the number of leading axes that both shapes have.
        back: the number of trailing axes that both shapes have.
        flat: the joined axis of x, sharded as the first of its axes; None where others of them are sharded.
    """

    def __init__(self, problem: Problem) -> None:
        x, result = required(problem.operands[0]).shape, problem.results[0].shape
        min_ndim = min(len(x), len(result))
        self.front = next((i for i in range(min_ndim) if x[i] != result[i]), min_ndim)
        self.back = next(
            (i for i in range(min_ndim - self.front) if x[-1 - i] != result[-1 - i]), min_ndim - self.front
        )
        self.x, self.result = (shape[self.front : len(shape) - self.back] for shape in (x, result))
        spec = required(problem.in_specs[0])
        self.spec = spec[self.front : len(spec) - self.back]
        self.flat: ShardedAxis | None = None
        if self.x and self.result and 0 not in x and not any(self.spec[1:]):
            along, inner = sharded_axes(problem)[self.front], math.prod(self.x[1:])
            self.flat = ShardedAxis(self.front, along.axis_names, along.mesh, math.prod(self.x), along.block * inner)

    def moved_rows(self) -> MovedRows:
        """Returns the elements of each block of the result."""
        flat = required(self.flat)
        count = -(-self.result[0] // flat.devices) * math.prod(self.result[1:])
        firsts = [min(device * count, flat.rows) for device in range(flat.devices)]
        return MovedRows.of(flat, firsts, count, 0)


def _reshape_specs(problem: Problem) -> LocalSpecs | str:
    spec, reshaped = required(problem.in_specs[0]), _BlockReshape(problem)
    if reshaped.flat is None:
        return "x is sharded along another axis than the first of those that are joined or divided"
    targets = [i if i < reshaped.front or i >= len(spec) - reshaped.back else None for i in range(len(spec))]
    if not reshaped.moved_rows().has_margins and can_exchange(problem, targets):
        return TOO_MANY
    middle = (reshaped.spec[0], *[()] * (len(reshaped.result) - 1))
    return LocalSpecs((spec,), (*spec[: reshaped.front], *middle, *spec[len(spec) - reshaped.back :]))


def _reshape(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    reshaped = _BlockReshape(problem)
    needed = reshaped.moved_rows()

    def move(bits: jax.Array) -> jax.Array:
        back = bits.shape[bits.ndim - reshaped.back :]
        return needed(bits.reshape(*bits.shape[: reshaped.front], -1, *back)).reshape(block.shape)

    return moved(move, required(operands[0]))


RESHAPE = RowExchange(
    "The devices send each other the elements that their blocks of the result lack. Serves x that is sharded along "
    "the first of the axes that are joined or divided, and a result sharded likewise.",
    _reshape_specs,
    _reshape,
)
