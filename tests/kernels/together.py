"""Runs many calls as one program: to compile them one by one takes several times as long."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from shardcall_core.layouts.layout import padded_shape
from shardcall_server.authoring.runner import KernelCase
from shardcall_server.compilation.program import Placement, _on_held_types, build_mesh, named_sharding
from shardcall_server.mesh.placement import ParallelCopier, gather, put_padded

Call = tuple[KernelCase, Sequence[np.ndarray | None]]
"""A case and its operands."""
MAX_CALLS = 20
"""In a program; one of 145 calls takes three times as long to compile as eight of 20."""


def run_together(calls: Sequence[Call], padding: float = 0) -> list[tuple[np.ndarray, ...]]:
    """The results of calls, those on one mesh together; checks of values refuse nothing.

    Args:
        calls: the cases and their operands.
        padding: what the operands' padding holds.
    """
    of_meshes: dict[object, list[int]] = {}
    for i, (case, _) in enumerate(calls):
        of_meshes.setdefault(case.mesh, []).append(i)
    results: dict[int, tuple[np.ndarray, ...]] = {}
    for indices in of_meshes.values():
        for first in range(0, len(indices), MAX_CALLS):
            some = indices[first : first + MAX_CALLS]
            results |= zip(some, _of_one_program([calls[i] for i in some], padding), strict=True)
    return [results[i] for i in range(len(calls))]


def _of_one_program(calls: Sequence[Call], padding: float) -> Iterator[tuple[np.ndarray, ...]]:
    resolved, copier = [case.resolve() for case, _ in calls], ParallelCopier()
    mesh = build_mesh(resolved[0].problem.mesh, resolved[0].device_ids)
    programs, inputs, shardings = {}, {}, {}
    for i, ((_, operands), call) in enumerate(zip(calls, resolved, strict=True)):
        if any(result.nbytes for result in call.problem.results):  # as `compile_parts` leaves out others
            programs[i] = _on_held_types(call.strategy.build(call.problem, mesh), call.problem)
            inputs[i] = [*_placed(operands, call.problem, mesh, copier, padding)]
            shardings[i] = [None if spec is None else named_sharding(mesh, spec) for spec in call.problem.out_specs]

    def together(inputs: dict[int, list[jax.Array]]) -> dict[int, list[jax.Array]]:
        return {i: list(programs[i](*arrays)[: len(shardings[i])]) for i, arrays in inputs.items()}

    computed = jax.jit(together, out_shardings=shardings)(inputs)
    for i, call in enumerate(resolved):
        results = tuple(np.zeros(result.shape, result.dtype) for result in call.problem.results)
        for array, result in zip(computed.get(i, ()), results, strict=i in computed):
            gather(array, result, copier, lambda _: None)
        yield results


def _placed(
    operands: Sequence[np.ndarray | None], problem: Any, mesh: jax.sharding.Mesh, copier: ParallelCopier, padding: float
) -> Iterator[jax.Array]:
    for operand, spec in zip(operands, problem.in_specs, strict=False):  # those at the end may be left out
        if operand is not None and spec is not None:
            placement = Placement(padded_shape(operand.shape, spec, problem.mesh), named_sharding(mesh, spec))
            with np.errstate(invalid="ignore"):  # NaN as an integer is some integer
                padded = np.full(placement.padded, padding).astype(operand.dtype)
            padded[tuple(slice(n) for n in operand.shape)] = operand
            yield put_padded(padded, placement, copier, may_alias=True)
