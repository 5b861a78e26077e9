"""The strategies of a row of the table."""

from __future__ import annotations

from functools import partial

import jax

from shardcall_server.kernels.array_functions.block_programs import blocks_program, blocks_refusal, gathered_refusal
from shardcall_server.kernels.array_functions.exchanged_axes import exchanged_program, exchanged_refusal
from shardcall_server.kernels.array_functions.one_device import one_device_program
from shardcall_server.kernels.array_functions.row import LocalSpecs, Row
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy


def strategies_of(row: Row) -> tuple[Strategy, ...]:
    """Returns the strategies of a row, the preferred one first."""
    blocks = Strategy(
        "blocks",
        "Every device computes its block of the result from its blocks of the operands, without collectives. "
        "Serves operands that are not sharded along the axes that the function needs complete.",
        lambda problem: blocks_refusal(row, problem),
        lambda problem, mesh: blocks_program(row, problem, mesh),
    )
    exchanged = Strategy(
        "all_to_all",
        "The devices exchange parts of their blocks, so that each has the axes that the function needs complete for a "
        "part of another axis, and exchange the results back. Serves operands with another axis to shard.",
        lambda problem: exchanged_refusal(row, problem),
        lambda problem, mesh: exchanged_program(row, problem, mesh),
    )
    gathered = Strategy(
        "gathered",
        "Operands are gathered along the axes that the function needs complete, every device computes its "
        "block, and the result is sharded again. Serves the layouts that blocks does not serve.",
        lambda problem: gathered_refusal(row, problem),
        lambda problem, mesh: blocks_program(row, problem, mesh),
    )
    one_device = Strategy(
        "one_device",
        "Every device gathers the operands, the first one computes the result, and the devices get their blocks of "
        "it. Serves the layouts that blocks does not serve.",
        lambda problem: gathered_refusal(row, problem),
        lambda problem, mesh: one_device_program(row, problem, mesh),
    )
    return (blocks, *_of_rows(row), exchanged, *([one_device] if row.needs_complete_axes else []), gathered)


def _of_rows(row: Row) -> tuple[Strategy, ...]:
    """Returns the strategy that exchanges rows, if the row has one."""
    if (form := row.exchange) is None:
        return ()

    def refusal(problem: Problem) -> str | None:
        if blocks_refusal(row, problem) is None:
            return "every device has all elements that its block of the result needs, and it sends some"
        return specs if isinstance(specs := form.specs(problem), str) else None

    def program(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
        specs = form.specs(problem)
        assert isinstance(specs, LocalSpecs)
        return blocks_program(row, problem, mesh, specs, partial(form.body, problem))

    return (Strategy("exchange", form.documentation, refusal, program),)
