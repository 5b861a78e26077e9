"""Elements moved along axes, with wrap-around, as `numpy.roll`."""

from __future__ import annotations

import math
from dataclasses import replace

import jax
import jax.numpy as jnp

from shardcall_core.layouts.layout import OperandTypes
from shardcall_core.layouts.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy, required
from shardcall_server.kernels.core.parameters import integers
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.stencils.shift import Shift, ShiftParameters, moves_of, periodic
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

    name = "roll"
    version = 1
    reproducibility = Reproducibility.ALWAYS
    summary = "Elements moved round along one axis or several, as numpy.roll."
    operands = (OperandInfo("x", "The array, of any rank and element type."),)
    parameters = (
        ParameterInfo("shift", "By how many rows, for all axes or for each; negative towards the first."),
        ParameterInfo("axis", "The axis or axes; negative ones count from the last. None: x is flattened.", None),
    )
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

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[ShiftParameters]:
        """Checks a call and determines the result's type.

        Raises:
            CallError: for axes out of range, and shifts that are not one for all axes or one for each.
        """
        x = required(operands[0])
        if parameters["axis"] is not None:
            return Signature(periodic(moves_of(parameters, x.ndim), x), (x,))
        total = sum(integers(parameters, "shift"))
        if x.ndim == 1:
            return Signature(periodic([(0, total)], x), (x,))
        return Signature(ShiftParameters((total % max(math.prod(x.shape), 1),), None, "periodic"), (x,))
