"""Conditionals: a program runs one of two graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.checks import integers, program
from shardcall_core.functions.signature import OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.graphs.graph import Graph
from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Spec, Specs, required, row_sharding
from shardcall_server.kernels.core.blocks import partition_spec
from shardcall_server.kernels.core.kernel import Kernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.graphs.bodies import GraphBodies, all_resharded
from shardcall_server.kernels.graphs.plan import GraphPlan


@dataclass(frozen=True)
class CondParameters:
    """The parameters of `CondKernel`.

    Attributes:
        then: the graph that runs if the condition is true.
        otherwise: the graph that runs if it is false.
        then_inputs: for each input of the first graph the index of an operand behind the condition.
        otherwise_inputs: those of the other one.
    """

    then: Graph
    otherwise: Graph
    then_inputs: tuple[int, ...]
    otherwise_inputs: tuple[int, ...]

    @property
    def branches(self) -> tuple[tuple[Graph, tuple[int, ...]], ...]:
        """The graphs, the one of a false condition first, with the indices of their inputs."""
        return (self.otherwise, self.otherwise_inputs), (self.then, self.then_inputs)


class CondKernel(Kernel[CondParameters]):
    """One of two graphs, as ``jax.lax.cond``; only a node of graphs.

    Sharding: results have the specs that they have in the graph of a true condition.

    Args:
        bodies: graphs of the kernels of nodes.
    """

    name = "cond"
    version = 3
    summary = "One of two graphs, by a condition."
    operands = (
        OperandInfo("pred", "The condition, bool []."),
        OperandInfo("inputs", "The inputs of the graphs.", optional=True, repeated=True),
    )
    parameters = (
        ParameterInfo("then", "The graph that runs if the condition is true."),
        ParameterInfo("otherwise", "The graph that runs if it is false."),
        ParameterInfo("then_inputs", "The indices of the first graph's inputs.", ()),
        ParameterInfo("otherwise_inputs", "The indices of the other graph's inputs.", ()),
    )
    reproducibility = Reproducibility.PER_CALL

    def __init__(self, bodies: GraphBodies) -> None:
        self._bodies = bodies
        self.strategies = (  # type: ignore[misc]  # with these graphs
            Strategy("composed", "A branch in the program. Serves every layout.", lambda _: None, self._build),
        )

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[CondParameters]:
        """Checks both graphs.

        Raises:
            CallError: for what a graph refuses, a condition that is not one bool, and results of different types.
        """
        parsed = CondParameters(
            program(parameters, "then"),
            program(parameters, "otherwise"),
            integers(parameters, "then_inputs"),
            integers(parameters, "otherwise_inputs"),
        )
        pred, inputs = required(operands[0]), tuple(map(required, operands[1:]))
        if pred.shape or pred.dtype != np.bool_:
            raise CallError(Reason.INVALID_OPERAND, f"pred is {shorten(str(pred))}; give one bool", field="pred")
        others, results = (self._results(graph, indices, inputs) for graph, indices in parsed.branches)
        if results != others:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"then has the results {_listed(results)} and otherwise {_listed(others)}; give graphs with equal ones",
                field="otherwise",
            )
        checks = [
            check
            for graph, indices in parsed.branches
            for check in self._bodies.types(graph, tuple(inputs[i] for i in indices)).checks
        ]
        return Signature(parsed, results, tuple(checks))

    def work_bytes(self, operands: OperandTypes, signature: Signature[CondParameters]) -> int:
        """Returns the bytes of the larger graph."""
        inputs = tuple(map(required, operands[1:]))
        return max(
            self._bodies.types(graph, tuple(inputs[i] for i in indices)).work_bytes
            for graph, indices in signature.parameters.branches
        )

    def default_in_specs(
        self, operands: OperandTypes, parameters: CondParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs as the kernels in the graphs do."""
        inputs, specs = tuple(map(required, operands[1:])), list(in_specs[1:])
        for graph, indices in reversed(parameters.branches):
            types, requested = tuple(inputs[i] for i in indices), tuple(specs[i] for i in indices)
            plan = self._bodies.plan(graph, types, requested, mesh)
            for i, spec in zip(indices, plan.in_specs, strict=True):
                specs[i] = spec
        filled = (spec or row_sharding(array_type.ndim, mesh) for array_type, spec in zip(inputs, specs, strict=True))
        return ((), *filled)

    def default_out_specs(self, problem: Problem[CondParameters], strategy: str) -> Specs:
        """Shards each result as the graph of a true condition does."""
        defaults = self._result_specs(problem)
        return tuple(
            default if spec is None else spec for default, spec in zip(defaults, problem.out_specs, strict=True)
        )

    def is_reproducible(self, problem: Problem[CondParameters]) -> bool:
        """Returns True if the results of all nodes are reproducible."""
        return all(kernel.is_reproducible(of_node) for kernel, of_node in self.parts(problem))

    def parts(self, problem: Problem[CondParameters]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels of the nodes, each with its problem."""
        return [part for branch in _bodies(problem) for part in self._bodies.parts(*branch, problem.mesh)]

    def plans(self, problem: Problem[CondParameters]) -> Sequence[GraphPlan]:
        """Returns the plans of the graphs."""
        return [self._bodies.plan(*branch, problem.mesh) for branch in _bodies(problem)]

    def _results(self, graph: Graph, indices: Sequence[int], inputs: tuple[ArrayType, ...]) -> tuple[ArrayType, ...]:
        if len(indices) != graph.input_count or not all(0 <= i < len(inputs) for i in indices):
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"a branch has {graph.input_count} inputs and takes the operands {shorten(str(indices))} "
                f"of {len(inputs)}; give the index of one for each input",
                field="then_inputs",
            )
        return self._bodies.results(graph, tuple(inputs[i] for i in indices))

    def _result_specs(self, problem: Problem[CondParameters]) -> list[Spec]:
        _, then = _bodies(problem)
        return self._bodies.result_specs(*then, problem.mesh)

    def _build(self, problem: Problem[CondParameters], mesh: jax.sharding.Mesh) -> Program:
        specs, axes, count = self._result_specs(problem), problem.mesh, len(problem.results)
        placed = [NamedSharding(mesh, partition_spec(spec)) for spec in specs]
        programs = [self._bodies.program(*branch, specs, axes, mesh) for branch in _bodies(problem)]
        numbers = [len(self._bodies.types(*branch[:2]).checks) for branch in _bodies(problem)]
        indices = [inputs for _, inputs in problem.parameters.branches]

        def branch(which: int, inputs: Sequence[jax.Array]) -> tuple[jax.Array, ...]:
            results = programs[which](*(inputs[i] for i in indices[which]))
            kept = map(lax.with_sharding_constraint, results[:count], placed)
            no = jnp.zeros((), bool)
            flags = results[count:]
            return (*kept, *([*flags, *[no] * numbers[1]] if which == 0 else [*[no] * numbers[0], *flags]))

        def program(pred: jax.Array, *inputs: jax.Array) -> tuple[jax.Array, ...]:
            results = lax.cond(
                pred, lambda *operands: branch(1, operands), lambda *operands: branch(0, operands), *inputs
            )
            return all_resharded(results, problem.results, specs, problem.out_specs, axes, mesh)

        return program


def _bodies(problem: Problem[CondParameters]) -> list[tuple[Graph, tuple[ArrayType, ...], Specs]]:
    """Returns the graphs, the one of a false condition first, the types of their inputs, and the specs."""
    inputs, specs = tuple(map(required, problem.operands[1:])), problem.in_specs[1:]
    return [
        (graph, tuple(inputs[i] for i in indices), tuple(specs[i] for i in indices))
        for graph, indices in problem.parameters.branches
    ]


def _listed(types: Sequence[ArrayType]) -> str:
    return shorten(", ".join(map(str, types)))
