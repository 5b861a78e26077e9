"""Stencil kernels, whose elements depend on their neighbours: blocks, their halos, and one pass over both.

Elements that need no other block are computed first, together; the *faces*, the outermost rows, are then updated in
place. XLA does this in one pass over memory, in which the elements of a face may be computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from shardcall_core.functions.signature import ParametersT
from shardcall_core.layouts.layout import MeshAxes, OperandTypes, Specs, format_spec, replicated, required
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.blocks import fit, pad_axis, partition_spec
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem, Program, Strategy
from shardcall_server.kernels.stencils.exchange import ShardedAxis, behind, fill, rows_after, rows_before, written
from shardcall_server.kernels.stencils.routes import Boundary

Body = Callable[..., tuple[jax.Array, ...]]
"""Maps a block of x, the unsharded other operands and ``alongs`` to a block of each result."""


@dataclass(frozen=True)
class HaloExtendedBlock:
    """A block with its halo along one axis.

    Attributes:
        axis: the axis.
        block: the rows of the device.
        before: the rows before the block; None if they are not needed.
        after: the rows after it; None if they are not needed.
    """

    axis: int
    block: jax.Array
    before: jax.Array | None = None
    after: jax.Array | None = None

    def at(self, start: int, stop: int) -> jax.Array:
        """Returns rows from one to another, counted from the first row of the block; negative ones are before it."""
        if start == stop:
            return self._cut(self.block, 0, 0)
        size, parts = self.block.shape[self.axis], []
        if start < 0:
            before = required(self.before)
            count = before.shape[self.axis]
            parts.append(self._cut(before, count + start, count + min(stop, 0)))
        if start < size and stop > 0:
            parts.append(self._cut(self.block, max(start, 0), min(stop, size)))
        if stop > size:
            parts.append(self._cut(required(self.after), max(start - size, 0), stop - size))
        return jnp.concatenate(parts, self.axis) if len(parts) > 1 else parts[0]

    def _cut(self, array: jax.Array, start: int, stop: int) -> jax.Array:
        return lax.slice_in_dim(array, start, stop, axis=self.axis)


def stencil(
    block: jax.Array,
    along: ShardedAxis,
    width: tuple[int, int],
    boundary: Boundary,
    value: Callable[[HaloExtendedBlock, int, int], jax.Array],
) -> jax.Array:
    """Returns one device's block of a result.

    Args:
        block: the device's block of x.
        along: the axis along which elements depend on others.
        width: the number of rows before a row, and of rows after it, that its elements depend on.
        boundary: the values outside x.
        value: the result from one row of the block to another, in the result's element type.
    """
    (before, after), axis, size = width, along.axis, block.shape[along.axis]
    start, stop = before, size - after
    # Rows that wrap around into padding come from other blocks; other fill values are local.
    needs_all = boundary == "periodic" and after > 0 and not along.is_even
    filled = fill(block, along, boundary) if after else block
    inside = value(HaloExtendedBlock(axis, filled), start, stop) if start < stop and not needs_all else None
    right = rows_after(along, after, boundary)(block)
    if needs_all:
        filled = written(filled, right, along)
    extended = HaloExtendedBlock(axis, filled, rows_before(along, before, boundary)(block), behind(right, along))
    if start >= stop:
        return value(extended, 0, size)
    if inside is None:
        inside = value(extended, start, stop)
    result = pad_axis(element_types.as_bits(inside), axis, before, after)
    for first, last in ((0, start), (stop, size)):
        if first < last:
            face = element_types.as_bits(value(extended, first, last))
            result = lax.dynamic_update_slice_in_dim(result, face, first, axis)
    return element_types.from_bits(result, inside.dtype)


def on_blocks(problem: Problem, mesh: jax.sharding.Mesh, axes: Sequence[int], body: Body) -> Program:
    """Returns the program that runs a body on every device's block of x; the other operands are replicated."""
    x, spec = required(problem.operands[0]), required(problem.in_specs[0])
    alongs = [ShardedAxis.of(x, spec, axis, problem.mesh) for axis in axes]
    others = [operand for operand in problem.operands[1:] if operand is not None]
    mapped: Body = jax.shard_map(
        lambda block, *rest: body(block, *rest, alongs=alongs),
        mesh=mesh,
        in_specs=(partition_spec(spec), *(partition_spec(replicated(other.ndim)) for other in others)),
        out_specs=tuple(partition_spec(spec) for _ in problem.results),
    )

    def program(block: jax.Array, *rest: jax.Array) -> tuple[jax.Array, ...]:
        unpadded = [fit(array, other.shape) for array, other in zip(rest, others, strict=True)]
        return mapped(block, *unpadded)

    return program


def on_unsharded(problem: Problem, axes: Sequence[int], body: Body) -> Program:
    """Returns the program that runs a body on the unsharded x, which the compiler partitions."""
    present = [operand for operand in problem.operands if operand is not None]
    x = present[0]
    alongs = [ShardedAxis(axis, (), problem.mesh, x.shape[axis], x.shape[axis]) for axis in axes]

    def program(*operands: jax.Array) -> tuple[jax.Array, ...]:
        unpadded = [fit(array, operand.shape) for array, operand in zip(operands, present, strict=True)]
        results = body(*unpadded, alongs=alongs)
        return tuple(fit(result, problem.padded_result(i)) for i, result in enumerate(results))

    return program


class StencilKernel(FunctionKernel[ParametersT]):
    """A kernel whose results are sharded as x and whose other operands are replicated, where no spec is set."""

    def default_in_specs(
        self, operands: OperandTypes, parameters: ParametersT, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: x by rows over all mesh axes, the other operands replicated."""
        (x,) = super().default_in_specs(operands[:1], parameters, in_specs[:1], mesh, strategy)
        others = zip(operands[1:], in_specs[1:], strict=True)
        return (x, *(replicated(o.ndim) if o is not None and spec is None else spec for o, spec in others))

    def default_out_specs(self, problem: Problem[ParametersT], strategy: str) -> Specs:
        """Shards each result as x."""
        return tuple(problem.in_specs[0] if spec is None else spec for spec in problem.out_specs)


def strategies(axes: Callable[[Problem], Sequence[int]], bound: Callable[[Problem], Body]) -> tuple[Strategy, ...]:
    """Returns ``halo`` and ``gspmd`` for a kernel.

    Args:
        axes: the axes along which the elements of a problem's results depend on others.
        bound: the body for a problem.
    """
    return (
        Strategy(
            "halo",
            "Every device sends its outermost rows to its neighbours and computes its own block in one pass. Serves "
            "results sharded as x.",
            refusal,
            lambda problem, mesh: on_blocks(problem, mesh, axes(problem), bound(problem)),
        ),
        Strategy(
            "gspmd",
            "The computation on the unsharded array, partitioned by the compiler. Serves every layout.",
            lambda _: None,
            lambda problem, _: on_unsharded(problem, axes(problem), bound(problem)),
        ),
    )


def refusal(problem: Problem) -> str | None:
    """Returns why `on_blocks` cannot serve a problem: a result is not sharded as x."""
    spec = required(problem.in_specs[0])
    for out_spec in problem.out_specs:
        if out_spec is not None and out_spec != spec:
            return (
                f"x is sharded as {format_spec(spec)} and the result as {format_spec(out_spec)}, "
                "and it serves a result sharded as x"
            )
    return None
