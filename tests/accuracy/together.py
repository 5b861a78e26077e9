"""Runs many cases as one program in this process: compiling them one by one would take several times as long."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from accuracy.elementwise import Case

from shardcall_server.authoring.runner import kernel_case
from shardcall_server.compilation.program import build_mesh
from shardcall_server.kernels.core.element_types import convert, held_type
from shardcall_server.kernels.library import kernels

_KERNELS = {kernel.name: kernel for kernel in kernels()}
_MESH = {"x": 1}


def run_together(cases: Sequence[Case]) -> list[tuple[np.ndarray, ...]]:
    """The results of each case's kernel on one device, with the flags that XLA has in this process."""
    resolved = [
        kernel_case(_KERNELS[case.kernel], *case.operands, mesh=_MESH, parameters=case.parameters).resolve()
        for case in cases
    ]
    programs = [
        resolution.strategy.build(resolution.problem, build_mesh(resolution.problem.mesh, resolution.device_ids))
        for resolution in resolved
    ]

    def together(held: list[list[jax.Array]]) -> list[list[jax.Array]]:
        returned = []
        for case, resolution, program, inputs in zip(cases, resolved, programs, held, strict=True):
            arrays = [convert(x, operand.dtype) for x, operand in zip(inputs, _present(case), strict=True)]
            # The arrays after the results of a program are flags.
            results = program(*arrays)[: len(resolution.problem.results)]
            returned.append([array.astype(held_type(array.dtype)) for array in results])
        return returned

    arrays_of_cases = jax.jit(together)([[x.astype(held_type(x.dtype)) for x in _present(case)] for case in cases])
    return [
        tuple(np.asarray(a).astype(result.dtype) for a, result in zip(arrays, resolution.problem.results, strict=True))
        for arrays, resolution in zip(arrays_of_cases, resolved, strict=True)
    ]


def _present(case: Case) -> list[np.ndarray]:
    return [np.asarray(operand) for operand in case.operands if operand is not None]
