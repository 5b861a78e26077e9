"""The strategy ``all_to_all`` of rows of the table, which exchanges the axes that are sharded.

The mesh axes of an array axis that a function needs complete move to another array axis, whose indices are computed
independently. Each device sends and receives (D - 1) / D of its block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import jax
from jax import lax

from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import MeshAxes, Spec, block_shape, format_spec, padded_shape, required
from shardcall_server.kernels.array_functions.block_programs import blocks_program, blocks_refusal, local_specs
from shardcall_server.kernels.array_functions.row import Row, alignment_of, call_of
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit, partition_spec
from shardcall_server.kernels.core.kernel import Problem, Program


def exchanged_refusal(row: Row, problem: Problem) -> str | None:
    """Returns why the devices cannot exchange the axis that they shard."""
    if blocks_refusal(row, problem) is None:
        return "every device has all elements that its block of the result needs, and it exchanges some"
    if len(problem.results) > 1:
        return "it has several results"
    inner = _exchanged(row, problem)
    if inner is None:
        return "no other axis of the operand is long enough to be sharded instead, over the same mesh axes"
    entries = zip(problem.in_specs, inner.in_specs, local_specs(row, inner).operands, strict=True)
    for k, (has, spec, needed) in enumerate(entries):
        if has is None or spec is None:
            continue
        if _moved_axes(has, spec) is None or (spec != needed and any(spec)):
            name = FUNCTIONS[row.name].operand_name(k)
            return f"{name} is sharded as {format_spec(has)}, and it serves {format_spec(required(needed))}"
    return None


def exchanged_program(row: Row, problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    """Returns the program that exchanges the axes of the main operand, and those of the result back."""
    inner = required(_exchanged(row, problem))
    present = [k for k, operand in enumerate(problem.operands) if operand is not None]
    out_spec, inner_spec, result = required(problem.out_specs[0]), required(inner.out_specs[0]), problem.results[0]
    program = blocks_program(row, inner, mesh)

    def exchanged(array: jax.Array, k: int) -> jax.Array:
        has, needs = required(problem.in_specs[k]), required(inner.in_specs[k])
        return _sharded_as(array, required(problem.operands[k]).shape, has, needs, problem.mesh, mesh)

    def on_arrays(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        of_result, *flags = program(*(exchanged(array, k) for array, k in zip(arrays, present, strict=True)))
        return (_sharded_as(of_result, result.shape, inner_spec, out_spec, problem.mesh, mesh), *flags)

    return on_arrays


def can_exchange(problem: Problem, targets: Sequence[int | None]) -> bool:
    """Returns True if the first operand has an axis that can be sharded instead of any other."""
    shape, spec = required(problem.operands[0]).shape, required(problem.in_specs[0])
    return bool(_free_axes(targets, spec, shape, max(map(problem.mesh.size, spec), default=1)))


def _free_axes(targets: Sequence[int | None], spec: Sequence[object], shape: Sequence[int], devices: int) -> list[int]:
    """Returns the unsharded aligned axes that are long enough: with fewer elements, most devices would have none."""
    aligned = [i for i, target in enumerate(targets) if target is not None]
    return [i for i in aligned if not spec[i] and 2 * shape[i] >= devices]


def _exchanged(row: Row, problem: Problem) -> Problem | None:
    """Returns the problem with another axis of its main operand sharded; None if there is none."""
    spec = required(problem.in_specs[row.main])
    needed = required(local_specs(row, problem).operands[row.main])
    targets, shape = alignment_of(row, call_of(problem))[row.main], required(problem.operands[row.main]).shape
    exchanged = list(needed)
    for names in [names for names, kept in zip(spec, needed, strict=True) if names != kept]:
        if not (free := _free_axes(targets, exchanged, shape, problem.mesh.size(names))):
            return None
        exchanged[max(free, key=lambda i: shape[i])] = names
    in_specs = tuple(tuple(exchanged) if k == row.main else s for k, s in enumerate(problem.in_specs))
    needs = local_specs(row, replace(problem, in_specs=in_specs, out_specs=(None,))).operands
    served = tuple(
        needed if spec is not None and needed is not None and _moved_axes(spec, needed) else spec
        for spec, needed in zip(in_specs, needs, strict=True)
    )
    inner = replace(problem, in_specs=served)
    result = local_specs(row, replace(inner, out_specs=(None,))).result
    out_spec = required(problem.out_specs[0])
    # Where the axes cannot be exchanged back, the compiler moves the result.
    is_served = _moved_axes(result, out_spec) or result == out_spec
    return replace(inner, out_specs=(result if is_served else out_spec,))


def _moved_axes(has: Spec, needs: Spec) -> dict[tuple[str, ...], tuple[int, int]] | None:
    """Returns the array axes between which mesh axes move, by mesh axes; None if the specs differ in another way."""
    moves = {}
    for axis, (names, needed) in enumerate(zip(has, needs, strict=True)):
        if names == needed:
            continue
        if names and needed:
            return None
        if names:
            if names not in needs:
                return None
            moves[names] = axis, needs.index(names)
        elif needed not in has:
            return None
    return moves


def _sharded_as(
    array: jax.Array, shape: tuple[int, ...], has: Spec, needs: Spec, axes: MeshAxes, mesh: jax.sharding.Mesh
) -> jax.Array:
    """Returns a padded array with another sharding, in which some mesh axes shard another array axis than before."""
    array = fit(array, padded_shape(shape, has, axes))
    block, moves = block_shape(shape, needs, axes), _moved_axes(has, needs) or {}

    def exchange(bits: jax.Array) -> jax.Array:
        for names, (source, target) in moves.items():
            sizes = [block[target] * axes.size(names) if i == target else n for i, n in enumerate(bits.shape)]
            bits = lax.all_to_all(fit(bits, sizes), names, target, source, tiled=True)
        return fit(bits, block)

    if has == needs:
        return array
    return jax.shard_map(
        lambda part: moved(exchange, part),
        mesh=mesh,
        in_specs=partition_spec(has),
        out_specs=partition_spec(needs),
        check_vma=False,
    )(array)
