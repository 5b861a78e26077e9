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
from shardcall_server.kernels.derivatives import GRAPH, differentiable
from shardcall_server.kernels.differentiation import is_differentiated
from shardcall_server.kernels.graph_loop import TIMES, check_carried, check_times, looped
from shardcall_server.kernels.graph_plan import GraphPlan, PlannedNode, check_derivatives, plan_of, types_of
from shardcall_server.kernels.graph_transforms import (
    TRANSFORMS,
    check_dual_operands,
    check_transform,
    transformed,
    transformed_specs,
    transformed_types,
)
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
        transform: the transformation of the graph, one of `TRANSFORMS`; empty for none.
        wrt: the inputs that a derivative is with respect to.
    """

    graph: str
    kernels: tuple[str, ...]
    carried: tuple[int, ...] = ()
    transform: str = ""
    wrt: tuple[int, ...] = ()


class GraphKernel(Kernel[GraphParameters]):
    """A graph of kernel calls, run as one program; its operands are the inputs of the graph.

    Every node is computed by its kernel's own strategy, and the compiler fuses across them. Results are those of the
    calls one by one: what the compiler would round otherwise in one program is kept apart (`sealing`). Flags of all
    nodes refuse the call.

    With ``carried`` the graph runs several times, as a loop in the program, and the last operand is their number. A
    result that becomes an input has its spec.

    With ``transform`` the program is a transformation of the graph by JAX, such as its gradient. A node of this kernel
    is a graph in the graph.

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
        ParameterInfo("transform", f"A transformation of the graph: {', '.join(TRANSFORMS)}; none if empty.", ""),
        ParameterInfo("wrt", "Of a derivative: the indices of the inputs that it is with respect to.", ()),
    )
    reproducibility = Reproducibility.PER_CALL

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        self._kernels = {**kernels, self.name: self}
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
        transform, wrt = text(parameters, "transform"), integers(parameters, "wrt")
        graph, present = graph_of(written), tuple(map(required, operands))
        check_transform(transform, wrt, graph.input_count)
        inputs = present[: graph.input_count]
        if carried and present:
            check_times(present[-1])
        _check_count(graph, len(present), carried, transform)
        types, checks = types_of(graph, self._kernels, inputs)
        versions = tuple(f"{name} {self._kernels[name].version}" for name in sorted(_names_of(graph)))
        results = tuple(types[value] for value in graph.results)
        if carried:
            check_carried(carried, inputs, results)
            checks.append(TIMES)
        if transform:
            wanted, results = transformed_types(transform, wrt, inputs, results)
            check_dual_operands(wanted, present)
        return Signature(GraphParameters(written, versions, carried, transform, wrt), results, tuple(checks))

    def default_in_specs(
        self, operands: OperandTypes, parameters: GraphParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: an input has the one that the first kernel that uses it fills in."""
        plan = self._plan_for(operands, parameters, in_specs, mesh)
        if parameters.wrt:
            check_derivatives(plan, {Value(-1, i) for i in parameters.wrt}, self._plan_of)
        results = [plan.specs[value] for value in graph_of(parameters.graph).results]
        own, _ = transformed_specs(parameters.transform, parameters.wrt, plan.in_specs, results, plan.results)
        own = (*own, *[()] * bool(parameters.carried))
        return tuple(each if spec is None else spec for spec, each in zip(in_specs, own, strict=True))

    def default_out_specs(self, problem: Problem[GraphParameters], strategy: str) -> Specs:
        """Shards each result as its kernel does."""
        parameters, plan = problem.parameters, self._plan_of(problem)
        specs = self._result_specs(problem)
        _, own = transformed_specs(parameters.transform, parameters.wrt, plan.in_specs, specs, plan.results)
        return tuple(each if spec is None else spec for each, spec in zip(own, problem.out_specs, strict=True))

    def is_reproducible(self, problem: Problem[GraphParameters]) -> bool:
        """Returns True if every node's result is, and there are no derivatives."""
        return problem.parameters.transform in ("", "checkpoint") and all(
            kernel.is_reproducible(of_node) for kernel, of_node in self.parts(problem)
        )

    def parts(self, problem: Problem[GraphParameters]) -> Sequence[tuple[Kernel, Problem]]:
        """Returns the kernels of the nodes, each with its problem."""
        nodes = self._plan_of(problem).nodes
        return [part for node in nodes for part in node.kernel.parts(node.problem)]

    def _plan_of(self, problem: Problem[GraphParameters]) -> GraphPlan:
        return self._plan_for(problem.operands, problem.parameters, problem.in_specs, problem.mesh)

    def _plan_for(
        self, operands: OperandTypes, parameters: GraphParameters, in_specs: Specs, mesh: MeshAxes
    ) -> GraphPlan:
        inputs = tuple(map(required, operands))[: graph_of(parameters.graph).input_count]
        return self._plan(parameters.graph, inputs, in_specs[: len(inputs)], mesh)

    def _result_specs(self, problem: Problem[GraphParameters]) -> list[Spec]:
        """Returns the spec of each result of the graph."""
        plan, results = self._plan_of(problem), graph_of(problem.parameters.graph).results
        carried = problem.parameters.carried or (-1,) * len(results)
        return [plan.specs[value] if i < 0 else plan.in_specs[i] for value, i in zip(results, carried, strict=True)]

    def _planned(self, written: str, inputs: tuple[ArrayType, ...], in_specs: Specs, mesh: MeshAxes) -> GraphPlan:
        return plan_of(graph_of(written), self._kernels, inputs, in_specs, mesh)

    def _build(self, problem: Problem[GraphParameters], mesh: jax.sharding.Mesh) -> Program:
        specs, count, parameters = self._result_specs(problem), len(problem.results), problem.parameters
        plan = self._plan_of(problem)
        inner = self._build_once(problem, plan, specs, mesh)
        if parameters.carried:
            inner = looped(inner, parameters.carried, problem.results, specs, problem.mesh, mesh)
        inner = transformed(inner, parameters.transform, parameters.wrt, plan.results, specs, problem.mesh)
        _, made_specs = transformed_specs(parameters.transform, parameters.wrt, plan.in_specs, specs, plan.results)

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            made = inner(*arrays)
            resharded = (
                _resharded(array, kind, own, required(spec), problem.mesh, mesh)
                for array, kind, own, spec in zip(
                    made[:count], problem.results, made_specs, problem.out_specs, strict=True
                )
            )
            return (*resharded, *made[count:])

        return program

    def _build_once(
        self, problem: Problem[GraphParameters], plan: GraphPlan, specs: Sequence[Spec], mesh: jax.sharding.Mesh
    ) -> Program:
        results = graph_of(problem.parameters.graph).results
        programs = [node.strategy.build(node.problem, mesh) for node in plan.nodes]
        used = {value for node in plan.nodes for value in node.operands}

        def program(*arrays: jax.Array) -> tuple[jax.Array, ...]:
            values = {Value(-1, i): array for i, array in enumerate(arrays)}
            flags: list[jax.Array] = []
            for i, (node, compute) in enumerate(zip(plan.nodes, programs, strict=True)):
                run = differentiable(node.kernel, node.problem, compute, mesh) if is_differentiated() else compute
                made = run(*_operands(node, plan, values, mesh))
                count = len(node.problem.results)
                flags += made[count:]
                for index, array in enumerate(made[:count]):
                    value = Value(i, index)
                    values[value] = _kept(node, index, array, mesh) if value in used else array
            resharded = (
                _resharded(values[value], kind, plan.specs[value], spec, problem.mesh, mesh)
                for value, kind, spec in zip(results, plan.results, specs, strict=True)
            )
            return (*resharded, *flags)

        return program


def _check_count(graph: Graph, count: int, carried: Sequence[int], transform: str) -> None:
    needed = graph.input_count + bool(carried)
    if count < needed or (count > needed and not transform):
        raise CallError(
            Reason.OPERAND_COUNT,
            f"the graph has {graph.input_count} inputs and {max(count - bool(carried), 0)} operands came; give one for "
            f"each{', and times' if carried else ''}",
            field="operands",
        )
    if carried and transform:
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"carried and transform={transform!r} were given; give one of them",
            field="carried",
        )


def _names_of(graph: Graph) -> set[str]:
    """Returns the kernels of a graph and of those in it."""
    within = (dict(node.parameters)["graph"] for node in graph.nodes if node.kernel == GRAPH)
    return {node.kernel for node in graph.nodes}.union(*(_names_of(graph_of(str(each))) for each in within))


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
