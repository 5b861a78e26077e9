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
from shardcall_server.kernels.graph_loop import TIMES, check_carried, check_times, looped
from shardcall_server.kernels.graph_plan import GraphPlan, PlannedNode, plan_of, types_of
from shardcall_server.kernels.kernel import Kernel, Problem, Program, Strategy, required
from shardcall_server.kernels.layout import ArrayType, MeshAxes, OperandTypes, Spec, Specs, padded_shape
from shardcall_server.kernels.parameters import integers, text
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
        carried: for each result the input that it becomes in the next iteration, -1 for none; empty without a loop.
    """

    graph: str
    kernels: tuple[str, ...]
    carried: tuple[int, ...] = ()


class GraphKernel(Kernel[GraphParameters]):
    """A graph of kernel calls, run as one program; its operands are the inputs of the graph.

    Every node is computed by its kernel's own strategy, and the compiler fuses across them. Results are those of the
    calls one by one: what the compiler would round otherwise in one program is kept apart (`sealing`). Flags of all
    nodes refuse the call.

    With ``carried`` the graph runs several times, as a loop in the program, and the last operand is their number. A
    result that becomes an input has its spec.

    Sharding: that of each kernel, in order: an operand has the spec of the result that it is, and results have their
    kernel's default, or rows over all mesh axes where that leaves it to the compiler.

    Args:
        kernels: the kernels that nodes may be of, by name.
    """

    name = "graph"
    version = 1
    summary = "A graph of kernel calls, run as one program."
    operands = (
        OperandInfo("inputs", "The inputs of the graph; of a loop also times, last.", optional=True, repeated=True),
    )
    parameters = (
        ParameterInfo("graph", "The graph as canonical JSON: nodes, and which values are results."),
        ParameterInfo("carried", "Of a loop: for each result the input that it becomes, or -1.", ()),
    )
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
        written, carried = text(parameters, "graph"), integers(parameters, "carried")
        graph, inputs = graph_of(written), _inputs(operands, carried)
        if carried and operands:
            check_times(required(operands[-1]))
        if graph.input_count != len(inputs):
            raise CallError(
                Reason.OPERAND_COUNT,
                f"the graph has {graph.input_count} inputs and {len(inputs)} operands came; give one for each"
                f"{', and times' if carried else ''}",
                field="operands",
            )
        types, checks = types_of(graph, self._kernels, inputs)
        names = sorted({node.kernel for node in graph.nodes})
        versions = tuple(f"{name} {self._kernels[name].version}" for name in names)
        results = tuple(types[value] for value in graph.results)
        if carried:
            check_carried(carried, inputs, results)
            checks.append(TIMES)
        return Signature(GraphParameters(written, versions, carried), results, tuple(checks))

    def default_in_specs(
        self, operands: OperandTypes, parameters: GraphParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: an input has the one that the first kernel that uses it fills in."""
        inputs = _inputs(operands, parameters.carried)
        plan = self._plan(parameters.graph, inputs, in_specs[: len(inputs)], mesh)
        return (*plan.in_specs, *[()] * bool(parameters.carried))

    def default_out_specs(self, problem: Problem[GraphParameters], strategy: str) -> Specs:
        """Shards each result as its kernel does."""
        own = self._result_specs(problem)
        return tuple(each if spec is None else spec for each, spec in zip(own, problem.out_specs, strict=True))

    def is_reproducible(self, problem: Problem[GraphParameters]) -> bool:
        """Returns True if every node's result is."""
        return all(kernel.is_reproducible(of_node) for kernel, of_node in self.parts(problem))

    def parts(self, problem: Problem[GraphParameters]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels of the nodes, each with its problem."""
        return [(node.kernel, node.problem) for node in self._plan_of(problem).nodes]

    def _plan_of(self, problem: Problem[GraphParameters]) -> GraphPlan:
        inputs = _inputs(problem.operands, problem.parameters.carried)
        return self._plan(problem.parameters.graph, inputs, problem.in_specs[: len(inputs)], problem.mesh)

    def _result_specs(self, problem: Problem[GraphParameters]) -> list[Spec]:
        """Returns the spec of each result before it is moved to the one that the call sets."""
        plan, results = self._plan_of(problem), graph_of(problem.parameters.graph).results
        carried = problem.parameters.carried or (-1,) * len(results)
        return [plan.specs[value] if i < 0 else plan.in_specs[i] for value, i in zip(results, carried, strict=True)]

    def _planned(self, written: str, inputs: tuple[ArrayType, ...], in_specs: Specs, mesh: MeshAxes) -> GraphPlan:
        return plan_of(graph_of(written), self._kernels, inputs, in_specs, mesh)

    def _build(self, problem: Problem[GraphParameters], mesh: jax.sharding.Mesh) -> Program:
        specs, count = self._result_specs(problem), len(problem.results)
        inner = self._build_once(problem, specs, mesh)
        if problem.parameters.carried:
            inner = looped(inner, problem.parameters.carried, problem.results, specs, problem.mesh, mesh)

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            made = inner(*arrays)
            resharded = (
                _resharded(array, kind, own, required(spec), problem.mesh, mesh)
                for array, kind, own, spec in zip(made[:count], problem.results, specs, problem.out_specs, strict=True)
            )
            return (*resharded, *made[count:])

        return program

    def _build_once(self, problem: Problem[GraphParameters], specs: Sequence[Spec], mesh: jax.sharding.Mesh) -> Program:
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
                _resharded(values[value], kind, plan.specs[value], spec, problem.mesh, mesh)
                for value, kind, spec in zip(results, problem.results, specs, strict=True)
            )
            return (*resharded, *flags)

        return program


def _inputs(operands: OperandTypes, carried: Sequence[int]) -> tuple[ArrayType, ...]:
    """Returns the types of the inputs of a graph: the operands, of a loop without the number of iterations."""
    inputs = tuple(map(required, operands))
    return inputs[:-1] if carried else inputs


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
