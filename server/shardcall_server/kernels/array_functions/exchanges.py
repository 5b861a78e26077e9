"""The strategy ``exchange`` of rows of the table that move elements to positions known at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions import checks, layout_rules
from shardcall_core.layouts.layout import format_spec, required
from shardcall_server.kernels.array_functions.exchanged_axes import can_exchange
from shardcall_server.kernels.array_functions.joined_rows import JoinedPart, joined
from shardcall_server.kernels.array_functions.row import CallShapes, LocalSpecs, ResultBlock, RowExchange, call_of
from shardcall_server.kernels.array_functions.sliced_axes import SlicedAxis
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.element_types import convert
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.stencils.exchange import ShardedAxis

MAX_PARTS = 8
"""The maximum number of arrays that an exchange joins; each takes a few collectives."""

TOO_MANY = "the devices would send as many rows as their blocks have, and exchange another axis in less time"


def sharded_axes(problem: Problem, operand: int = 0) -> list[ShardedAxis]:
    """Returns the axes of an operand."""
    array, spec = required(problem.operands[operand]), required(problem.in_specs[operand])
    return [ShardedAxis.of(array, spec, axis, problem.mesh) for axis in range(array.ndim)]


def of_result(problem: Problem, of: ShardedAxis, axis: int) -> ShardedAxis:
    """Returns an axis of the result that is sharded as one of an operand."""
    size = problem.results[0].shape[axis]
    return ShardedAxis(axis, of.axis_names, of.mesh, size, -(-size // of.devices))


def others(axes: Sequence[int], ndim: int) -> list[int | None]:
    """Returns the alignment of an operand to a result with the same axes, with None for some of them."""
    return [None if i in axes else i for i in range(ndim)]


def _flip_axes(call: CallShapes) -> tuple[int, ...]:
    return checks.axes(call.parameters, "axis", len(call.x))


def _flip_specs(problem: Problem) -> LocalSpecs | str:
    spec = required(problem.in_specs[0])
    return LocalSpecs((spec,), spec)


def _flip(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    alongs = sharded_axes(problem)

    def move(bits: jax.Array) -> jax.Array:
        for along in (alongs[axis] for axis in _flip_axes(block.call)):
            last = jnp.asarray(along.rows - 1, np.int64)
            bits = SlicedAxis(along, along.rows, -1, is_sharded=True)(bits, last) if along.rows else bits
        return bits

    return moved(move, required(operands[0]))


FLIP = RowExchange(
    "Each device sends its reversed block to the device that needs it, and the edges that padding moves.",
    _flip_specs,
    _flip,
)


def _joined_parts(problem: Problem) -> list[tuple[int, JoinedPart]]:
    """Returns the parts of a concatenation that have rows, by operand."""
    axis, parts, first = problem.parameters.axis, [], 0
    for k, operand in enumerate(map(required, problem.operands)):
        of = replace(sharded_axes(problem)[axis], rows=operand.shape[axis])
        of = replace(of, block=-(-of.rows // of.devices))
        if of.rows:
            parts.append((k, JoinedPart(of, first, of_result(problem, of, axis))))
        first += of.rows
    return parts


def _concatenate_specs(problem: Problem) -> LocalSpecs | str:
    specs, axis = [required(spec) for spec in problem.in_specs], problem.parameters.axis
    if axis is None:
        return "the arrays are flattened, and it serves one axis"
    if len(specs) > MAX_PARTS:
        return f"there are {len(specs)} arrays, and it joins at most {MAX_PARTS}"
    for spec in specs:
        if any(spec) and spec != specs[0]:
            return f"an array is sharded as {format_spec(spec)}, and it serves arrays that are sharded as the first"
    parts = _joined_parts(problem)
    if not all(part.is_cheap for _, part in parts) and can_exchange(problem, others((axis,), len(specs[0]))):
        return TOO_MANY
    return LocalSpecs((specs[0],) * len(specs), specs[0])


def _concatenate(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    parts = _joined_parts(problem)

    def move(*bits: jax.Array) -> jax.Array:
        return joined([(part, part(bits[k])) for k, part in parts]) if parts else bits[0]

    return moved(move, *(convert(required(operand), block.dtype) for operand in operands))


CONCATENATE = RowExchange(
    "The devices send each other the rows that their blocks of the result lack; every device gets the arrays that "
    "are shorter than half a block.",
    _concatenate_specs,
    _concatenate,
)


def _edge_slices(rows: int, before: int, behind: int, mode: str) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Returns the first index, number and step of the elements that pad an axis before its start and after its end."""
    if mode == "wrap":
        return (rows - before, before, 1), (0, behind, 1)
    skipped = 1 if mode == "reflect" else 0
    return (skipped + before - 1, before, -1), (rows - 1 - skipped, behind, -1)


def _pad_specs(problem: Problem) -> LocalSpecs | str:
    spec, call = required(problem.in_specs[0]), call_of(problem)
    widths, mode = layout_rules.margins(call.x, call.parameters), call["mode"]
    unpadded = others([axis for axis, width in enumerate(widths) if sum(width)], len(widths))
    for along, width in zip(sharded_axes(problem), widths, strict=True):
        if not sum(width) or not along.axis_names:
            continue
        needed = 1 if mode in ("constant", "edge") else max(width) + (mode == "reflect")
        if along.rows < needed:
            return f"the axis has {along.rows} rows, and it serves axes of {needed} for this width"
        part = JoinedPart(along, width[0], of_result(problem, along, along.axis))
        if not part.is_cheap and can_exchange(problem, unpadded):
            return TOO_MANY
    return LocalSpecs((spec, None if problem.operands[1] is None else ()), spec)


def _padded(bits: jax.Array, fill: jax.Array, part: JoinedPart, behind: int, mode: str) -> jax.Array:
    """Returns the running device's block of an array padded with rows before and after it along an axis."""
    along, before, axis = part.of, part.first, part.joined
    middle = part(bits)
    if mode in ("constant", "edge"):
        edges = [fill, fill]
        if mode == "edge":
            one = SlicedAxis(along, 1, 1, is_sharded=False)
            edges = [one(bits, jnp.asarray(row, np.int64)) for row in (0, along.rows - 1)]
        head = JoinedPart(replace(along, rows=before), 0, axis)
        tail = JoinedPart(replace(along, rows=behind), before + along.rows, axis)
        return joined([(head, edges[0]), (part, middle), (tail, edges[1])])
    parts, slices = [(part, middle)], _edge_slices(along.rows, before, behind, mode)
    for first, (start, count, step) in zip((0, before + along.rows), slices, strict=True):
        if count:
            edge = SlicedAxis(along, count, step, is_sharded=False)(bits, jnp.asarray(start, np.int64))
            of_edge = JoinedPart(replace(along, rows=count), first, axis)
            parts.append((of_edge, of_edge.of_complete(edge)))
    return joined(sorted(parts, key=lambda pair: pair[0].first))


def _pad(problem: Problem, block: ResultBlock, operands: Sequence[jax.Array | None]) -> jax.Array:
    x, fill = required(operands[0]), operands[1]
    value = jnp.zeros((), x.dtype) if fill is None else convert(fill, block.dtype)
    widths, mode = layout_rules.margins(block.call.x, block.call.parameters), block["mode"]
    alongs = sharded_axes(problem)

    def move(bits: jax.Array, of_fill: jax.Array) -> jax.Array:
        for along, (before, behind) in zip(alongs, widths, strict=True):
            if not before + behind:
                continue
            if along.devices > 1 and along.rows:
                part = JoinedPart(along, before, of_result(problem, along, along.axis))
                bits = _padded(bits, of_fill, part, behind, mode)
            else:
                bits = _padded_here(bits, of_fill, along.axis, (before, behind), mode)
        return bits

    return moved(move, x, value)


def _padded_here(bits: jax.Array, fill: jax.Array, axis: int, width: tuple[int, int], mode: str) -> jax.Array:
    widths = [width if i == axis else (0, 0) for i in range(bits.ndim)]
    if mode != "constant":
        return jnp.pad(bits, widths, mode=mode)
    return lax.pad(bits, fill, [(before, behind, 0) for before, behind in widths])


PAD = RowExchange(
    "The devices send each other the rows that their blocks of the result lack, and every device gets the rows from "
    "which the new ones are made.",
    _pad_specs,
    _pad,
)
