"""Rows moved along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType, OperandTypes
from shardcall_core.layouts.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.axes import axis as checked_axis
from shardcall_server.kernels.core.bits import as_integers, from_integers, moved
from shardcall_server.kernels.core.blocks import index_type
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy, required
from shardcall_server.kernels.core.parameters import integers, one_of
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.stencils import stencil
from shardcall_server.kernels.stencils.exchange import Exchange, ShardedAxis
from shardcall_server.kernels.stencils.routes import Boundary
from shardcall_server.kernels.stencils.stencil import StencilKernel

MODES = ("fill", "periodic")
_TYPE_CODES = "biufc"  # of NumPy; a value fits into arrays of its own type code and of later ones; i and u are equal


@dataclass(frozen=True)
class ShiftParameters:
    """The parameters of `Shift` and `Roll`: for each of the axes its shift; no axes stand for the flattened array."""

    shift: tuple[int, ...]
    axis: tuple[int, ...] | None
    mode: str


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

    name = "shift"
    version = 4
    reproducibility = Reproducibility.ALWAYS
    summary = "Rows moved along one axis or several, as numpy.roll, or with a value where nothing moves to."
    operands = (
        OperandInfo("x", "The array, of rank 1 or more and any element type."),
        OperandInfo("fill", "A scalar: what rows hold that nothing moves to, converted to x's element type; 0.", True),
    )
    parameters = (
        ParameterInfo("shift", "By how many rows, for all axes or for each; negative towards the first."),
        ParameterInfo("axis", "The axis or axes; negative ones count from the last.", -1),
        ParameterInfo("mode", "'fill', or 'periodic' for numpy.roll.", "fill"),
    )
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

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[ShiftParameters]:
        """Checks a call and determines the result's type.

        Raises:
            CallError: for a scalar x, axes out of range, more shifts than axes, another mode, and a fill that is not a
                scalar, that x cannot hold, or that is given where nothing is filled.
        """
        x, fill = required(operands[0]), operands[1]
        if not x.ndim:
            raise CallError(Reason.INVALID_OPERAND, f"x is {x}, a scalar; give an array of one axis or more", field="x")
        mode, moves = one_of(parameters, "mode", MODES), moves_of(parameters, x.ndim)
        if fill is not None:
            _check_fill(fill, x, mode)
        if mode == "periodic":
            return Signature(periodic(moves, x), (x,))
        if len({axis for axis, _ in moves}) < len(moves):
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"axis={shorten(str(parameters['axis']))} names an axis of x twice; name each once",
                field="axis",
            )
        shifts = tuple(max(-x.shape[axis], min(shift, x.shape[axis])) for axis, shift in moves)
        return Signature(ShiftParameters(shifts, tuple(axis for axis, _ in moves), mode), (x,))


def moves_of(parameters: ParameterValues, ndim: int) -> list[tuple[int, int]]:
    """Returns the axes, counted from the first, each with its shift.

    Raises:
        CallError: for axes out of range, and shifts that are not one for all axes or one for each.
    """
    axes = [checked_axis("axis", axis, ndim) for axis in integers(parameters, "axis")]
    shifts = integers(parameters, "shift")
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"{len(shifts)} shifts for {len(axes)} axes; give one for all, or one for each",
            field="shift",
        )
    count = 0 if not axes or not shifts else max(len(axes), len(shifts))
    return [(axes[i % len(axes)], shifts[i % len(shifts)]) for i in range(count)]


def periodic(moves: Sequence[tuple[int, int]], x: ArrayType) -> ShiftParameters:
    """Returns the parameters of a periodic shift: each axis once, in the shorter direction."""
    shifts: dict[int, int] = {}
    for axis, shift in sorted(moves):
        size = x.shape[axis]
        total = (shifts.get(axis, 0) + shift) % size if size else 0
        shifts[axis] = total - size if 2 * total > size else total
    return ShiftParameters(tuple(shifts.values()), tuple(shifts), "periodic")


def _check_fill(fill: ArrayType, x: ArrayType, mode: str) -> None:
    if mode == "periodic":
        raise CallError(Reason.INVALID_OPERAND, "mode='periodic' takes no fill; leave out one of them", field="fill")
    if fill.ndim:
        raise CallError(Reason.INVALID_OPERAND, f"fill is {fill}; give a scalar", field="fill")
    if _type_rank(fill.dtype) > _type_rank(x.dtype):
        raise CallError(
            Reason.UNSUPPORTED_ELEMENT_TYPE,
            f"fill is {fill.dtype.name} and x {x.dtype.name}, which cannot hold it; convert one of them",
            field="fill",
        )


def _type_rank(dtype: np.dtype) -> int:
    if element_types.is_narrow_float(dtype):
        return _TYPE_CODES.index("f")
    name = dtype.name.lstrip("u") if "int" in dtype.name else dtype.kind
    return _TYPE_CODES.index(name[0])
