"""Rows moved along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from shardcall_core.functions.stencils import ShiftParameters
from shardcall_core.functions.table import FUNCTIONS
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.bits import as_integers, from_integers, moved
from shardcall_server.kernels.core.blocks import index_type
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.stencils import stencil
from shardcall_server.kernels.stencils.exchange import Exchange, ShardedAxis
from shardcall_server.kernels.stencils.routes import Boundary
from shardcall_server.kernels.stencils.stencil import StencilKernel

MODES = ("fill", "periodic")


def _body(
    block: jax.Array,
    *fill: jax.Array,
    alongs: Sequence[ShardedAxis],
    counts: Sequence[int],
    mode: str,
) -> tuple[jax.Array]:
    dtype = block.dtype
    value = fill[0].astype(dtype) if fill else jnp.zeros((), dtype)
    if is_narrow := element_types.is_narrow_float(dtype):
        # XLA:CPU would convert them to float32 and back, which changes some NaN.
        block, value = as_integers(block), as_integers(value)
    for along, count in zip(alongs, counts, strict=True):
        block = _shifted(block, value, along, count, mode)
    return (from_integers(block, dtype) if is_narrow else block,)


def _shifted(block: jax.Array, value: jax.Array, along: ShardedAxis, count: int, mode: str) -> jax.Array:
    boundary: Boundary = "periodic" if mode == "periodic" else "none"
    dtype = index_type(along.devices * along.block + abs(count))
    first = jnp.asarray(along.index(), dtype) * along.block

    def filled(moved: jax.Array, start: int) -> jax.Array:
        # `start` is the row of the block at which `moved` begins.
        if boundary == "periodic":
            return moved
        shape = [size if i == along.axis else 1 for i, size in enumerate(moved.shape)]
        source = first + (start - count) + lax.broadcasted_iota(dtype, shape, along.axis)
        return jnp.where((source >= 0) & (source < along.rows), moved, value)

    def part(extended: stencil.HaloExtendedBlock, start: int, stop: int) -> jax.Array:
        moved = extended.at(start - count, stop - count)
        inside = start - count >= 0 and (stop - count <= along.held(along.devices - 1))
        return moved if inside else filled(moved, start)

    if abs(count) > along.block:
        starts = [device * along.block - count for device in range(along.devices)]
        windows = [
            (start, start + along.held(device)) if along.held(device) else (0, 0) for device, start in enumerate(starts)
        ]
        moved = Exchange.of(along, windows, boundary)(block)
        return filled(moved, 0)
    width = max(count, 0), max(-count, 0)
    return stencil.stencil(block, along, width, boundary, part)


def _bound(problem: Problem[ShiftParameters]) -> stencil.Body:
    return partial(_body, counts=problem.parameters.shift, mode=problem.parameters.mode)


def _axes(problem: Problem[ShiftParameters]) -> tuple[int, ...]:
    return problem.parameters.axis or ()


def _halo(problem: Problem[ShiftParameters], mesh: jax.sharding.Mesh) -> Program:
    return stencil.on_blocks(problem, mesh, _axes(problem), _bound(problem))


def _gspmd(problem: Problem[ShiftParameters], mesh: jax.sharding.Mesh) -> Program:
    unsharded = stencil.on_unsharded(problem, _axes(problem), _bound(problem))
    specs = problem.in_specs[0], problem.out_specs[0]

    def program(x: jax.Array, *fill: jax.Array) -> tuple[jax.Array]:
        values = [value.astype(x.dtype) for value in fill]
        return (moved(lambda *integers: unsharded(*integers)[0], x, *values, mesh=mesh, specs=specs),)

    return program


class Shift(StencilKernel[ShiftParameters]):
    """Rows moved along one axis or several: ``r[i, j, …] = x[i - shift[0], j - shift[1], …]``.

    With mode ``fill`` rows that nothing moves to hold ``fill``, as `scipy.ndimage.shift` with ``order=0, cval=fill``;
    with ``periodic`` rows that leave at one end enter at the other: `numpy.roll`. The result is of x's element type.

    Sharding: any axis may be sharded, over any mesh axes. Along one that is, ``halo`` sends |shift| rows in one
    direction, or the complete block in two parts where blocks are narrower than that, directly to their targets.
    ``gspmd`` leaves the partitioning to the compiler.
    """

    function = FUNCTIONS["shift"]
    version = 4
    reproducibility = Reproducibility.ALWAYS
    strategies = (
        Strategy(
            "halo",
            "Every device sends its rows to where they belong. Serves a result sharded as x.",
            stencil.refusal,
            _halo,
        ),
        Strategy(
            "gspmd",
            "The unsharded computation, partitioned by the compiler. Serves every layout.",
            lambda _: None,
            _gspmd,
        ),
    )
