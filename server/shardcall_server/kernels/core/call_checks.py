"""Calls of kernels: checks of their parts, and defaults of their specs and strategies.

Pure Python, before any tracing, so that no text of a JAX exception reaches a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.functions.argument_checks import check_operands, check_parameters
from shardcall_core.functions.signature import ParameterValues
from shardcall_core.graphs.graph import Constant
from shardcall_core.layouts.checks import check_spec
from shardcall_core.layouts.layout import ArrayType, MeshAxes, Spec, Specs
from shardcall_server.kernels.core.kernel import Kernel, Problem, Strategy

AUTO = "auto"
"""The strategy that leaves the choice to the server."""


def fill_in(
    kernel: Kernel,
    requested: Sequence[ArrayType | None],
    parameters: ParameterValues,
    mesh: MeshAxes,
    requested_in_specs: Specs,
    requested_out_specs: Specs,
    requested_strategy: str,
    constants: tuple[tuple[int, Constant], ...] = (),
) -> tuple[Problem, Strategy, str]:
    """Checks a call on an existing mesh, and fills in its defaults.

    Args:
        kernel: the kernel called.
        requested: the operands' types; None for one left out.
        parameters: values by name.
        mesh: the mesh's axes.
        requested_in_specs: entries per operand; None where unset. May be shorter than the operands.
        requested_out_specs: entries per result; None where unset.
        requested_strategy: a name, or "auto".
        constants: the operands that are known, by their indices.

    Returns:
        The problem, its strategy, and a clause that explains the strategy.

    Raises:
        CallError: for every mistake that a caller can make.
    """
    operands = check_operands(kernel, requested)
    signature = kernel.validate(operands, check_parameters(kernel, parameters))
    strategies = {strategy.name: strategy for strategy in kernel.strategies}
    if requested_strategy != AUTO and requested_strategy not in strategies:
        raise CallError(
            Reason.UNKNOWN_STRATEGY,
            f"kernel {kernel.name!r} has no strategy {shorten(requested_strategy)!r}; "
            f"{did_you_mean(requested_strategy, [*strategies, AUTO])}",
            field="strategy",
        )
    specs = _check_specs(
        "in_specs",
        [info.name for info in kernel.operand_infos(len(operands))],
        requested_in_specs,
        operands,
        mesh,
    )
    in_specs = kernel.default_in_specs(operands, signature.parameters, specs, mesh, requested_strategy)
    count = len(signature.results)
    result_names = ["the result"] if count == 1 else [f"result {i}" for i in range(count)]
    problem = Problem(
        operands=operands,
        parameters=signature.parameters,
        results=signature.results,
        mesh=mesh,
        in_specs=in_specs,
        out_specs=_check_specs("out_specs", result_names, requested_out_specs, signature.results, mesh),
        checks=signature.checks,
        constants=constants,
    )
    if requested_strategy == AUTO:
        name, reason = kernel.choose(problem)
    else:
        name, reason = requested_strategy, "asked for"
    problem = replace(problem, out_specs=kernel.default_out_specs(problem, name))
    if why := strategies[name].refusal(problem):
        able = [s.name for s in kernel.strategies if not s.refusal(problem)]
        raise CallError(
            Reason.STRATEGY_UNSUPPORTED,
            f"strategy {name!r} of kernel {kernel.name!r} cannot serve this layout: {why}; "
            + (f"these can: {', '.join([*able, AUTO])}" if able else "change the specs, or leave them unset"),
            field="strategy",
            metadata={"able": ",".join(able)},
        )
    return problem, strategies[name], reason


def _check_specs(
    field: str,
    names: Sequence[str],
    requested: Sequence[Spec | None],
    arrays: Sequence[ArrayType | None],
    mesh: MeshAxes,
) -> tuple[Spec | None, ...]:
    if len(requested) > len(arrays):
        raise CallError(
            Reason.INVALID_OPERAND,
            f"{field} has {len(requested)} specs for {', '.join(names)}; give at most one for each",
            field=field,
        )
    specs = tuple(requested) + (None,) * (len(arrays) - len(requested))
    return tuple(
        None if spec is None or array is None else check_spec(f"{field}[{i}]", name, spec, array, mesh)
        for i, (name, spec, array) in enumerate(zip(names, specs, arrays, strict=True))
    )
