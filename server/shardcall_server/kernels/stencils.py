"""Stencil kernels, whose elements depend on their neighbours: blocks, their halos, and one pass over both.

Elements that need no other block are computed first, at once; the *faces*, the outermost rows, are then updated in
place. XLA makes one pass over memory of that, and so the elements of a face may be computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from shardcall_server.kernels import element_types
from shardcall_server.kernels.blocks import fit, partition_spec
from shardcall_server.kernels.exchange import ShardedAxis, behind, fill, rows_after, rows_before, written
from shardcall_server.kernels.kernel import Kernel, Problem, Program, Strategy, required
from shardcall_server.kernels.layout import MeshAxes, OperandTypes, Specs, format_spec, replicated
from shardcall_server.kernels.routes import Boundary
from shardcall_server.kernels.signature import ParametersT

Region = tuple[tuple[int, int], ...]
"""Part of a block: from and to along each axis."""

Body = Callable[..., tuple[jax.Array, ...]]
"""Maps a block of x, the unsharded other operands and ``alongs`` to a block of each result."""


@dataclass(frozen=True)
class HaloExtendedBlock:
    """A block with its halo.

    Attributes:
        block: the device's own rows.
        sides: by axis, the rows before the block and those after it.
    """

    block: jax.Array
    sides: Mapping[int, tuple[jax.Array, jax.Array]]

    def at(self, region: Region, axis: int, offset: int) -> jax.Array:
        """Returns the region that is ``offset`` rows further along an axis than a region of the block."""
        start, stop = (edge + offset for edge in region[axis])
        size = self.block.shape[axis]
        parts = []
        if start < 0:
            left = self.sides[axis][0]
            count = left.shape[axis]
            parts.append(_cut(left, region, axis, count + start, count + min(stop, 0)))
        if start < size and stop > 0:
            parts.append(_cut(self.block, region, axis, max(start, 0), min(stop, size)))
        if stop > size:
            parts.append(_cut(self.sides[axis][1], region, axis, max(start - size, 0), stop - size))
        return jnp.concatenate(parts, axis) if len(parts) > 1 else parts[0]


def _cut(array: jax.Array, region: Region, axis: int, start: int, stop: int) -> jax.Array:
    spans = [(start, stop) if i == axis else span for i, span in enumerate(region)]
    return lax.slice(array, [a for a, _ in spans], [b for _, b in spans])


def stencil(
    block: jax.Array,
    alongs: Sequence[ShardedAxis],
    width: tuple[int, int],
    boundary: Boundary,
    value: Callable[[HaloExtendedBlock, Region], jax.Array],
) -> jax.Array:
    """Returns one device's block of a result.

    Args:
        block: the device's block of x.
        alongs: the axes along which elements depend on others.
        width: along each of these, how many rows before a row and how many after it its elements depend on.
        boundary: the values outside x.
        value: the result in a region of the block, in the result's element type.
    """
    before, after = width
    # Rows that wrap round into padding come from other blocks; other fill values are local.
    needs_all = boundary == "periodic" and after > 0 and not all(along.is_even for along in alongs)
    filled = block
    for along in alongs if after else ():
        filled = fill(filled, along, boundary)
    full: Region = tuple((0, size) for size in block.shape)
    center = _replaced(full, {a.axis: (before, block.shape[a.axis] - after) for a in alongs})
    has_center = all(start < stop for start, stop in center)
    inside = value(HaloExtendedBlock(filled, {}), center) if has_center and not needs_all else None
    sides = {}
    for along in alongs:
        right = rows_after(along, after, boundary)(block)
        sides[along.axis] = rows_before(along, before, boundary)(block), behind(right, along)
        if needs_all:
            filled = written(filled, right, along)
    extended = HaloExtendedBlock(filled, sides)
    if inside is None and has_center:
        inside = value(extended, center)
    if inside is None:
        return value(extended, full)
    return _with_faces(inside, extended, center, full, value)


def _with_faces(
    inside: jax.Array,
    extended: HaloExtendedBlock,
    center: Region,
    full: Region,
    value: Callable[[HaloExtendedBlock, Region], jax.Array],
) -> jax.Array:
    dtype = inside.dtype
    inside = element_types.as_bits(inside)
    margins = [(start, size - stop, 0) for (start, stop), (_, size) in zip(center, full, strict=True)]
    result = lax.pad(inside, jnp.zeros((), inside.dtype), margins)
    for axis in extended.sides:
        size = full[axis][1]
        for start, stop in ((0, center[axis][0]), (center[axis][1], size)):
            if start < stop:
                face = element_types.as_bits(value(extended, _replaced(full, {axis: (start, stop)})))
                result = lax.dynamic_update_slice_in_dim(result, face, start, axis)
    return element_types.from_bits(result, dtype)


def _replaced(region: Region, spans: Mapping[int, tuple[int, int]]) -> Region:
    return tuple(spans.get(axis, span) for axis, span in enumerate(region))


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


class StencilKernel(Kernel[ParametersT]):
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
