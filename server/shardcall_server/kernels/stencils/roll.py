"""Elements moved along axes, with wrap-around, as `numpy.roll`."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from shardcall_core.functions.stencils import ShiftParameters
from shardcall_core.functions.table import FUNCTIONS
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.stencils.shift import Shift
from shardcall_server.kernels.stencils.stencil import StencilKernel


def _is_flat(problem: Problem[ShiftParameters]) -> bool:
    return problem.parameters.axis is None


def _halo_refusal(problem: Problem[ShiftParameters]) -> str | None:
    if _is_flat(problem):
        return "without an axis elements move from row to row, and it moves rows along axes"
    return Shift.strategies[0].refusal(problem)


def _gspmd(problem: Problem[ShiftParameters], mesh: jax.sharding.Mesh) -> Program:
    if not _is_flat(problem):
        return Shift.strategies[1].build(problem, mesh)
    (result,), (shift,) = problem.results, problem.parameters.shift

    def rolled(integers: jax.Array) -> jax.Array:
        return fit(jnp.roll(fit(integers, result.shape), shift), problem.padded_result())

    return lambda x: (moved(rolled, x, mesh=mesh, specs=(problem.in_specs[0], problem.out_specs[0])),)


class Roll(StencilKernel[ShiftParameters]):
    """Elements moved round along one axis or several, as `numpy.roll`; without an axis, round the flattened array.

    Sharding: as `Shift` with mode ``periodic``. Without an axis an array of several axes is left to the compiler.

    Source: numpy/_core/numeric.py.
    """

    function = FUNCTIONS["roll"]
    version = 1
    reproducibility = Reproducibility.ALWAYS
    strategies = (
        replace(Shift.strategies[0], refusal=_halo_refusal),
        Strategy(
            Shift.strategies[1].name,
            "The unsharded computation, partitioned by the compiler; an x that is flattened is gathered where another "
            "axis than the first is sharded. Serves every layout.",
            lambda _: None,
            _gspmd,
        ),
    )
