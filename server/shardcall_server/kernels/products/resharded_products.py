"""Products of operands that are resharded first: the strategy `reshard`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import jax

from shardcall_core.functions.contraction import Contraction
from shardcall_core.layouts.layout import Spec, padded_shape, required
from shardcall_server.kernels.core.all_gather_plan import AllGatherPlan
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.products import block_products, costs, gspmd_products, partial_sums
from shardcall_server.kernels.products.contraction import ContractionOf, ContractionSharding

_MAX_PROBLEMS = 64


@dataclass(frozen=True)
class _Resharding:
    """Specs that the operands are moved to, and what is done with them there.

    Attributes:
        strategy: multiplies the operands.
        problem: the problem of the moved operands; every spec is set.
        cost: the cost of the moves and of the strategy.
    """

    strategy: Strategy
    problem: Problem
    cost: float


def _label_axes(problem: Problem, contraction: Contraction) -> Iterator[dict[str, tuple[str, ...]]]:
    """Yields the ways in which each mesh axis that shards an operand shards one label, of those that it shards."""
    sharding = ContractionSharding.of(problem, contraction)
    # A diagonal cannot be sharded along both of its axes.
    labels = [
        label
        for label in (*contraction.result, *contraction.summed)
        if all(axes.count(label) < 2 for axes in contraction.labels)
    ]
    specs = {label: [names for _, names in sharding.axes(label) if names] for label in labels}
    options = [
        [(name, label) for label in labels if any(name in names for names in specs[label])] for name in sharding.used
    ]
    for assigned in itertools.product(*filter(None, options)):
        shared = {label: {name for name, other in assigned if other == label} for label in labels}
        yield {
            label: next((s for s in specs[label] if {*s} == names), tuple(n for n in problem.mesh.names if n in names))
            for label, names in shared.items()
        }


def _reshardings(problem: Problem, of: ContractionOf) -> Iterator[_Resharding]:
    contraction = of(problem)
    strategies = *partial_sums.strategies(of), gspmd_products.gspmd(of)
    for label_axes in _label_axes(problem, contraction):
        in_specs = tuple(costs.spec_of(labels, label_axes) for labels in contraction.labels)
        if in_specs == problem.in_specs[: len(in_specs)]:
            continue
        of_moved = replace(problem, in_specs=(*in_specs, *problem.in_specs[len(in_specs) :]))
        is_summed = any(label_axes.get(label) for label in contraction.summed)
        for strategy in strategies[:-1] if is_summed else strategies[-1:]:
            out_spec = problem.out_specs[0]
            if out_spec is None and is_summed:
                out_spec = partial_sums.default_out_spec(of_moved, contraction, strategy.name)
            elif not is_summed:
                local = costs.spec_of(contraction.result, label_axes)
                if out_spec not in (None, local):
                    continue
                out_spec = local
            inner = replace(of_moved, out_specs=(out_spec,))
            if strategy.refusal(inner) is None:
                yield _Resharding(strategy, inner, costs.moved_bytes(problem, in_specs) + strategy.cost(inner))


@lru_cache(maxsize=_MAX_PROBLEMS)
def _cheapest(problem: Problem, of: ContractionOf) -> _Resharding | None:
    return min(_reshardings(problem, of), key=lambda resharding: resharding.cost, default=None)


def default_out_spec(problem: Problem, of: ContractionOf) -> Spec | None:
    """Returns the result's spec of this strategy; None where it cannot serve."""
    cheapest = _cheapest(problem, of)
    return None if cheapest is None else cheapest.problem.out_specs[0]


def _refusal(problem: Problem, of: ContractionOf) -> str | None:
    if _cheapest(problem, of) is None:
        return (
            "the operands are sharded as their product needs them, or the result is to be sharded otherwise than their "
            "products, and it moves operands of which one mesh axis shards several labels, or one operand alone"
        )
    return None


def _build(problem: Problem, mesh: jax.sharding.Mesh, of: ContractionOf) -> Program:
    contraction = of(problem)
    if program := block_products.empty_sum(problem, contraction.terms):
        return program
    cheapest = required(_cheapest(problem, of))
    multiply = cheapest.strategy.build(cheapest.problem, mesh)
    arrays = [array for array in problem.operands if array is not None]
    specs = [
        (required(has), required(needs))
        for has, needs in zip(problem.in_specs, cheapest.problem.in_specs, strict=True)
        if has is not None
    ]

    def resharded(operand: jax.Array, index: int) -> jax.Array:
        (has, needs), shape = specs[index], arrays[index].shape
        if has == needs:
            return operand
        plan = AllGatherPlan.of(shape, has, needs, problem.mesh)
        if plan.only_gathers:
            return plan.of_arrays(mesh)(operand)
        padded = padded_shape(shape, needs, problem.mesh)
        return moved(lambda bits: fit(fit(bits, shape), padded), operand, mesh=mesh, specs=(has, needs))

    return lambda *operands: multiply(*(resharded(operand, i) for i, operand in enumerate(operands)))


def reshard(of: ContractionOf) -> Strategy:
    """Returns ``reshard`` for a kernel's problems."""
    return Strategy(
        "reshard",
        "An all-to-all or a gather moves operands so that each mesh axis shards one label, in the layout of the fewest "
        "bytes; every device multiplies its blocks, and a collective completes partial sums. Serves operands of which "
        "one is sharded otherwise than the other.",
        partial(_refusal, of=of),
        partial(_build, of=of),
        lambda problem: required(_cheapest(problem, of)).cost,
    )
