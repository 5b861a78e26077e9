"""Strategies of rows of the table that compute each block alone: from the operands' blocks, or from gathered ones."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax import lax

from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import Spec, block_shape, format_spec, padded_shape, required
from shardcall_server.kernels.array_functions.row import (
    Body,
    IndexCheck,
    LocalSpecs,
    ResultBlock,
    Row,
    alignment_of,
    call_of,
    checks_of,
    spec_of_result,
)
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit, index_type, partition_spec
from shardcall_server.kernels.core.blockwise import AlignedAxis, Blockwise
from shardcall_server.kernels.core.kernel import Problem, Program
from shardcall_server.kernels.core.value_checks import any_element


def local_specs(row: Row, problem: Problem) -> LocalSpecs:
    """Returns the specs in which blocks are computed: the operands' own along axes that have an alignment."""
    call = call_of(problem)
    aligned = alignment_of(row, call)
    out_spec, used, result = problem.out_specs[0], set[str](), []
    by_operands = sorted(range(len(aligned)), key=lambda k: k != row.main)
    for axis in range(len(call.shape)):
        sources = [
            required(problem.in_specs[k])[a]
            for k in by_operands
            if problem.in_specs[k] is not None
            for a, target in enumerate(aligned[k])
            if target == axis
        ]
        if out_spec is not None and (sources or row.is_free):
            sources.append(out_spec[axis])
        names = next((names for names in sources if names and not used & set(names)), ())
        used |= set(names)
        result.append(names)
    operands = tuple(
        None if spec is None else tuple(() if target is None else result[target] for target in aligned[k])
        for k, spec in enumerate(problem.in_specs)
    )
    return LocalSpecs(operands, tuple(result))


def blocks_refusal(row: Row, problem: Problem) -> str | None:
    """Returns why blocks cannot be computed from the operands' blocks."""
    layout, infos = local_specs(row, problem), FUNCTIONS[row.name]
    for k, (spec, needed) in enumerate(zip(problem.in_specs, layout.operands, strict=True)):
        if spec is not None and needed is not None and spec != needed:
            return (
                f"{infos.operand_name(k)} is sharded as {format_spec(spec)}, and every device computes its block from "
                f"blocks sharded as {format_spec(needed)}"
            )
    if problem.out_specs[0] not in (None, layout.result):
        return f"every device computes a block of a result sharded as {format_spec(layout.result)}"
    return None


def blockwise_of(row: Row, problem: Problem) -> Blockwise | None:
    """Returns a call as one of a region of a program; None for one that cannot be in one."""
    if row.blockwise is not None:
        return row.blockwise(problem)
    call = call_of(problem)
    present = [k for k, operand in enumerate(problem.operands) if operand is not None]
    if len(problem.results) > 1 or problem.checks or not present or blocks_refusal(row, problem) is not None:
        return None
    layout, targets, dtype = local_specs(row, problem), alignment_of(row, call), problem.results[0].dtype
    in_specs = [required(layout.operands[k]) for k in present]
    aligned = tuple(
        tuple(
            AlignedAxis(required(target), 0) if names else None for target, names in zip(targets[k], spec, strict=True)
        )
        for k, spec in zip(present, in_specs, strict=True)
    )
    used = {item.axis for axes in aligned for item in axes if item is not None}
    if any(names and axis not in used for axis, names in enumerate(layout.result)):
        return None

    def body(shape: tuple[int, ...], offsets: tuple[int | jax.Array, ...], arrays: Sequence[jax.Array]) -> jax.Array:
        operands: list[jax.Array | None] = [None] * len(problem.operands)
        for k, array in zip(present, arrays, strict=True):
            operands[k] = array
        computed = row.body(ResultBlock(call, dtype, shape, offsets), operands)
        assert isinstance(computed, jax.Array)
        return computed

    return Blockwise(tuple(in_specs), aligned, body)


def gathered_refusal(row: Row, problem: Problem) -> str | None:
    """Returns why nothing has to be gathered."""
    if blocks_refusal(row, problem) is None:
        return "every device has all elements that its block of the result needs, and it gathers some"
    return None


def blocks_program(
    row: Row,
    problem: Problem,
    mesh: jax.sharding.Mesh,
    specs: LocalSpecs | None = None,
    of_block: Body | None = None,
) -> Program:
    """Returns the program that computes each block from blocks; the compiler gathers the blocks that operands lack.

    Args:
        row: the row.
        problem: the problem.
        mesh: its mesh.
        specs: of the blocks; by default those in which the row's body computes each block alone.
        of_block: computes a block; the row's body by default.
    """
    layout, call, result = specs or local_specs(row, problem), call_of(problem), problem.results[0]
    is_alone = problem.mesh.device_count == 1
    compute = row.body if of_block is None or is_alone else of_block
    present = [k for k, operand in enumerate(problem.operands) if operand is not None]
    in_specs = [(required(problem.in_specs[k]), required(layout.operands[k])) for k in present]
    shapes = [
        padded_shape(required(problem.operands[k]).shape, specs[1], problem.mesh)
        for k, specs in zip(present, in_specs, strict=True)
    ]
    has = [spec_of_result(layout.result, array.ndim) for array in problem.results]
    needs = [spec or default for spec, default in zip(problem.out_specs, has, strict=True)]
    padded = [padded_shape(array.shape, spec, problem.mesh) for array, spec in zip(problem.results, needs, strict=True)]
    of_batch = [] if row.batch_check is None else [layout.result[: row.batch_check.axes(call)]]
    local = block_shape(result.shape, layout.result, problem.mesh)

    def body(*blocks: jax.Array) -> tuple[jax.Array, ...]:
        offsets = tuple(
            lax.axis_index(names).astype(index_type(2 * max(size, 1))) * rows if names and not is_alone else 0
            for names, rows, size in zip(layout.result, local, result.shape, strict=True)
        )
        operands: list[jax.Array | None] = [None] * len(problem.operands)
        for k, block in zip(present, blocks, strict=True):
            operands[k] = block
        computed = compute(ResultBlock(call, result.dtype, local, offsets), operands)
        return computed if isinstance(computed, tuple) else (computed,)

    # One device has complete arrays; JAX takes several times as long to trace and lower a `jax.shard_map`.
    mapped: Program = (
        body
        if is_alone
        else jax.shard_map(
            body,
            mesh=mesh,
            in_specs=tuple(partition_spec(needs) for _, needs in in_specs),
            out_specs=tuple(map(partition_spec, [*has, *of_batch])),
            check_vma=False,
        )
    )

    def resharded(array: jax.Array, shape: Sequence[int], has: Spec, needs: Spec) -> jax.Array:
        if has == needs:
            return fit(array, shape)
        return moved(lambda bits: fit(bits, shape), array, mesh=mesh, specs=(has, needs))

    def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        flags = flags_of(row, problem, arrays, mesh)
        blocks = [resharded(array, shape, *specs) for array, shape, specs in zip(arrays, shapes, in_specs, strict=True)]
        results = mapped(*blocks)
        if of_batch:
            results, failed = results[:-1], results[-1]
            flags.append(any_element(_as_flagged, failed, result.shape[: failed.ndim], mesh, of_batch[0]))
        return (*map(resharded, results, padded, has, needs), *flags)

    return program


def _as_flagged(flags: jax.Array) -> jax.Array:
    return flags


def flags_of(row: Row, problem: Problem, arrays: Sequence[jax.Array], mesh: jax.sharding.Mesh) -> list[jax.Array]:
    """Returns the flags of a row's checks, from the present operands."""
    present = [k for k, operand in enumerate(problem.operands) if operand is not None]
    return [
        _flag(problem, check, arrays[present.index(check.operand)], mesh) for check in checks_of(row, call_of(problem))
    ]


def _flag(problem: Problem, check: IndexCheck, indices: jax.Array, mesh: jax.sharding.Mesh) -> jax.Array:
    shape, spec = required(problem.operands[check.operand]).shape, required(problem.in_specs[check.operand])
    count = check.count(call_of(problem))

    def refused(block: jax.Array) -> jax.Array:
        if block.dtype.kind == "u":
            return block.astype(np.uint64) >= np.uint64(count)
        wide = block.astype(np.int64)
        return (wide < -count) | (wide >= count)

    return any_element(refused, indices, shape, mesh, spec)
