"""Graphs of kernel calls as one program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import jax
from jax import lax
from jax.sharding import NamedSharding

from shardcall._src.graphs.canonical import canonical
from shardcall._src.graphs.graph import Graph, Value, from_text
from shardcall_server.errors import CallError, Reason
from shardcall_server.kernels.bits import moved
from shardcall_server.kernels.blocks import fit, partition_spec
from shardcall_server.kernels.graph_plan import GraphPlan, PlannedNode, plan_of, types_of
from shardcall_server.kernels.kernel import Kernel, Problem, Program, Strategy, required
from shardcall_server.kernels.layout import ArrayType, MeshAxes, OperandTypes, Spec, Specs, padded_shape
from shardcall_server.kernels.parameters import text
from shardcall_server.kernels.reproducibility import Reproducibility
from shardcall_server.kernels.sealing import is_sealed, sealed
from shardcall_server.kernels.signature import OperandInfo, ParameterInfo, ParameterValues, Signature

_MOST_PLANS = 64


@dataclass(frozen=True)
class GraphParameters:
    """The parameters of `GraphKernel`.

    Attributes:
        graph: the text of the graph.
        kernels: name and version of the kernels in it, in alphabetical order.
    """

    graph: str
    kernels: tuple[str, ...]


class GraphKernel(Kernel[GraphParameters]):
    """A graph of kernel calls, run as one program; its operands are the inputs of the graph.

    Every node is computed by its kernel's own strategy, and the compiler fuses across them. Results are those of the
    calls one by one: what the compiler would round otherwise in one program is kept apart (`sealing`). Flags of all
    nodes refuse the call.

    Sharding: that of each kernel, in order: an operand has the spec of the result that it is, and results have their
    kernel's default, or rows over all mesh axes where that leaves it to the compiler.

    Args:
        kernels: the kernels that nodes may be of, by name.
    """

    name = "graph"
    version = 1
    summary = "A graph of kernel calls, run as one program."
    operands = (OperandInfo("inputs", "The inputs of the graph.", optional=True, repeated=True),)
    parameters = (ParameterInfo("graph", "The graph as canonical JSON: nodes, and which values are results."),)
    reproducibility = Reproducibility.PER_CALL

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self._kernels = kernels
        self._plan = lru_cache(maxsize=_MOST_PLANS)(self._planned)
        self.strategies = (  # type: ignore[misc]  # with this graph's kernels
            Strategy(
                "composed",
                "The strategies of the nodes' kernels, in one program. Serves every layout.",
                lambda _: None,
                self._build,
            ),
        )

    def validate(self, operands: OperandTypes, parameters: ParameterValues) -> Signature[GraphParameters]:
        """Checks a graph, node by node, and determines its results' types.

        Raises:
            CallError: for a text that is no canonical graph, for inputs that it does not have, and for what the
                kernels of its nodes refuse.
        """
        written, inputs = text(parameters, "graph"), tuple(map(required, operands))
        graph = graph_of(written)
        if graph.input_count != len(inputs):
            raise CallError(
                Reason.OPERAND_COUNT,
                f"the graph has {graph.input_count} inputs and {len(inputs)} operands came; give one for each",
                field="operands",
            )
        types, checks = types_of(graph, self._kernels, inputs)
        names = sorted({node.kernel for node in graph.nodes})
        versions = tuple(f"{name} {self._kernels[name].version}" for name in names)
        return Signature(
            GraphParameters(written, versions), tuple(types[value] for value in graph.results), tuple(checks)
        )

    def default_in_specs(
        self, operands: OperandTypes, parameters: GraphParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: an input has the one that the first kernel that uses it fills in."""
        return self._plan(parameters.graph, tuple(map(required, operands)), in_specs, mesh).in_specs

    def default_out_specs(self, problem: Problem[GraphParameters], strategy: str) -> Specs:
        """Shards each result as its kernel does."""
        specs, results = self._plan_of(problem).specs, graph_of(problem.parameters.graph).results
        return tuple(
            specs[value] if spec is None else spec for value, spec in zip(results, problem.out_specs, strict=True)
        )

    def is_reproducible(self, problem: Problem[GraphParameters]) -> bool:
        """Returns True if every node's result is."""
        return all(kernel.is_reproducible(of_node) for kernel, of_node in self.parts(problem))

    def parts(self, problem: Problem[GraphParameters]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels of the nodes, each with its problem."""
        return [(node.kernel, node.problem) for node in self._plan_of(problem).nodes]

    def _plan_of(self, problem: Problem[GraphParameters]) -> GraphPlan:
        inputs = tuple(map(required, problem.operands))
        return self._plan(problem.parameters.graph, inputs, problem.in_specs, problem.mesh)

    def _planned(self, written: str, inputs: tuple[ArrayType, ...], in_specs: Specs, mesh: MeshAxes) -> GraphPlan:
        return plan_of(graph_of(written), self._kernels, inputs, in_specs, mesh)

    def _build(self, problem: Problem[GraphParameters], mesh: jax.sharding.Mesh) -> Program:
        plan, results = self._plan_of(problem), graph_of(problem.parameters.graph).results
        programs = [node.strategy.build(node.problem, mesh) for node in plan.nodes]
        used = {value for node in plan.nodes for value in node.operands}

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            values = {Value(-1, i): array for i, array in enumerate(arrays)}
            flags: list[jax.Array] = []
            for i, (node, compute) in enumerate(zip(plan.nodes, programs, strict=True)):
                made = compute(*_operands(node, plan, values, mesh))
                count = len(node.problem.results)
                flags += made[count:]
                for index, array in enumerate(made[:count]):
                    value = Value(i, index)
                    values[value] = _kept(node, index, array, mesh) if value in used else array
            resharded = (
                _resharded(values[value], kind, plan.specs[value], required(spec), problem.mesh, mesh)
                for value, kind, spec in zip(results, problem.results, problem.out_specs, strict=True)
            )
            return (*resharded, *flags)

        return program


@lru_cache(maxsize=_MOST_PLANS)
def graph_of(written: str) -> Graph:
    """Returns the graph of a text.

    Raises:
        CallError: if the text is no graph in its canonical form.
    """
    try:
        graph = from_text(written)
    except ValueError as error:
        raise CallError(Reason.INVALID_PARAMETER, f"graph {error}", field="graph") from None
    form, inputs = canonical(graph)
    if form != graph or inputs != sorted(inputs):
        raise CallError(
            Reason.INVALID_PARAMETER,
            "graph is not in its canonical form: number nodes and inputs as a walk from the results does, and leave "
            "out nodes that are not needed, or equal to others",
            field="graph",
        )
    return graph


def _operands(
    node: PlannedNode, plan: GraphPlan, values: Mapping[Value, jax.Array], mesh: jax.sharding.Mesh
) -> list[jax.Array]:
    kinds = [kind for kind in node.problem.operands if kind is not None]
    specs = [spec for spec in node.problem.in_specs if spec is not None]
    return [
        _resharded(values[value], kind, plan.specs[value], spec, node.problem.mesh, mesh)
        for value, kind, spec in zip(node.operands, kinds, specs, strict=True)
    ]


def _kept(node: PlannedNode, index: int, array: jax.Array, mesh: jax.sharding.Mesh) -> jax.Array:
    """Returns a node's result as the nodes after it use it."""
    if is_sealed(node.kernel.name, array.dtype):
        array = sealed(array)
    spec = partition_spec(required(node.problem.out_specs[index]))
    kept: jax.Array = lax.with_sharding_constraint(array, NamedSharding(mesh, spec))
    return kept


def _resharded(
    array: jax.Array, kind: ArrayType, has: Spec, needs: Spec, axes: MeshAxes, mesh: jax.sharding.Mesh
) -> jax.Array:
    if has == needs:
        return array
    shape = padded_shape(kind.shape, needs, axes)
    return moved(lambda bits: fit(fit(bits, kind.shape), shape), array, mesh=mesh, specs=(has, needs))
