"""The strategy ``one_device``: a computation that needs complete arrays runs once, and not on every device.

Every device gathers the operands, because all devices of a program have arrays of the same shapes; only the first one
computes. Its result is moved as integers in a sum to which the others add zeros. On 8 devices of one CPU, gathering
64 MiB on all devices takes no longer than sending them to one device block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, padded_shape, required
from shardcall_server.kernels.array_functions.block_programs import blocks_program, flags_of
from shardcall_server.kernels.array_functions.row import ResultBlock, Row, call_of
from shardcall_server.kernels.core.bits import from_parts, moved, parts_of, sum_of_parts
from shardcall_server.kernels.core.blocks import fit, gather, partition_spec
from shardcall_server.kernels.core.kernel import Problem, Program

Compute = Callable[[Sequence[jax.Array | None]], tuple[jax.Array, ...]]
"""Computes the results from the complete operands, None for one left out."""


def one_device_program(row: Row, problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    """Returns the program of a row of the table."""
    if problem.mesh.device_count == 1:
        return blocks_program(row, problem, mesh)
    result, call = problem.results[0], call_of(problem)
    block = ResultBlock(call, result.dtype, result.shape, (0,) * result.ndim)
    if row.batch_check is not None:
        batch = ArrayType(result.shape[: row.batch_check.axes(call)], np.dtype(bool))
        problem = replace(
            problem, results=(*problem.results, batch), out_specs=(*problem.out_specs, ((),) * batch.ndim)
        )

    def compute(operands: Sequence[jax.Array | None]) -> tuple[jax.Array, ...]:
        results = row.body(block, operands)
        return results if isinstance(results, tuple) else (results,)

    program = on_one_device(problem, mesh, compute)

    def on_arrays(*arrays: jax.Array) -> tuple[jax.Array, ...]:
        results, flags = program(*arrays), flags_of(row, problem, arrays, mesh)
        return (*results, *flags) if row.batch_check is None else (*results[:-1], *flags, jnp.any(results[-1]))

    return on_arrays


def on_one_device(problem: Problem, mesh: jax.sharding.Mesh, compute: Compute) -> Program:
    """Returns the program that computes the results of a problem, whose specs are all set, on the first device.

    Args:
        problem: the problem.
        mesh: its mesh.
        compute: computes all results, without padding.
    """
    present = [k for k, operand in enumerate(problem.operands) if operand is not None]
    out_specs = [required(spec) for spec in problem.out_specs]

    def body(*blocks: jax.Array) -> tuple[jax.Array, ...]:
        operands: list[jax.Array | None] = [None] * len(problem.operands)
        for k, block in zip(present, blocks, strict=True):
            operands[k] = _complete(block, required(problem.operands[k]), required(problem.in_specs[k]))

        def computed() -> list[tuple[jax.Array, ...]]:
            return [parts_of(array) for array in compute(operands)]

        is_first = lax.axis_index(problem.mesh.names) == 0
        none = jax.tree.map(lambda part: jnp.zeros(part.shape, part.dtype), jax.eval_shape(computed))
        results = lax.cond(is_first, computed, lambda: none)
        return tuple(
            _scattered(parts, result, spec, problem.mesh)
            for parts, result, spec in zip(results, problem.results, out_specs, strict=True)
        )

    mapped: Program = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=tuple(partition_spec(required(problem.in_specs[k])) for k in present),
        out_specs=tuple(map(partition_spec, out_specs)),
        check_vma=False,
    )
    return mapped


def _complete(block: jax.Array, array: ArrayType, spec: Spec) -> jax.Array:
    def gathered(bits: jax.Array) -> jax.Array:
        for axis, names in enumerate(spec):
            bits = gather(bits, names, axis) if names else bits
        return fit(bits, array.shape)

    return moved(gathered, block)


def _scattered(parts: Sequence[jax.Array], result: ArrayType, spec: Spec, mesh: MeshAxes) -> jax.Array:
    padded = [fit(part, padded_shape(result.shape, spec, mesh)) for part in parts]
    return from_parts([sum_of_parts(part, spec, mesh) for part in padded], result.dtype)
