"""Plans of graphs: the layout and the strategy of every node, decided in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from shardcall._src.graphs.graph import Graph, Node, Value
from shardcall_server.errors import CallError, Reason, did_you_mean, shorten
from shardcall_server.kernels.calls import AUTO, check_operands, check_parameters, fill_in
from shardcall_server.kernels.derivatives import GRAPH, is_inexact, refusal
from shardcall_server.kernels.kernel import Kernel, Problem, Strategy, required
from shardcall_server.kernels.layout import ArrayType, MeshAxes, Spec, Specs, rows_over_all
from shardcall_server.kernels.signature import Signature, ValueCheck

_MOST_SPAN_BYTES = 1 << 50

Kernels = Mapping[str, Kernel]


@dataclass(frozen=True)
class PlannedNode:
    """A node with all that its call left open filled in.

    Attributes:
        kernel: the kernel.
        operands: the operands that are present.
        problem: the problem that the strategy solves; every spec is set.
        strategy: the strategy.
    """

    kernel: Kernel
    operands: tuple[Value, ...]
    problem: Problem
    strategy: Strategy


@dataclass(frozen=True)
class GraphPlan:
    """The plan of a graph.

    Attributes:
        nodes: its nodes.
        in_specs: the spec of each input.
        specs: the spec of every value.
        results: the types of its results.
    """

    nodes: tuple[PlannedNode, ...]
    in_specs: tuple[Spec, ...]
    specs: Mapping[Value, Spec]
    results: tuple[ArrayType, ...]


def types_of(
    graph: Graph, kernels: Kernels, inputs: Sequence[ArrayType]
) -> tuple[dict[Value, ArrayType], list[ValueCheck]]:
    """Checks the calls of a graph; returns the type of every value, and the checks of all nodes.

    Raises:
        CallError: for a call that its kernel refuses, and values that are not there.
    """
    types = {Value(-1, i): kind for i, kind in enumerate(inputs)}
    checks: list[ValueCheck] = []
    for i, node in enumerate(graph.nodes):
        kernel = _kernel(kernels, i, node)
        operands = [None if value is None else _type(types, value) for value in node.operands]
        try:
            signature: Signature = kernel.validate(
                check_operands(kernel, operands), check_parameters(kernel, dict(node.parameters))
            )
        except CallError as error:
            raise _of_node(i, node, error) from None
        for index, result in enumerate(signature.results):
            if result.span_bytes > _MOST_SPAN_BYTES:
                raise _refused(f"has a node {i} whose result, {shorten(str(result))}, is too large")
            types[Value(i, index)] = result
        checks += [replace(check, message=f"{_named(i, node)}: {check.message}") for check in signature.checks]
    for value in graph.results:
        _type(types, value)
    return types, checks


def plan_of(graph: Graph, kernels: Kernels, inputs: Sequence[ArrayType], in_specs: Specs, mesh: MeshAxes) -> GraphPlan:
    """Plans the nodes of a graph that `types_of` accepts.

    The specs of a node's results are known before the next node is planned. An input without a spec takes the one that
    the first kernel that uses it fills in.

    Raises:
        CallError: for specs and strategies that a node cannot have.
    """
    types = {Value(-1, i): kind for i, kind in enumerate(inputs)}
    specs = {Value(-1, i): spec for i, spec in enumerate(in_specs) if spec is not None}
    nodes = []
    for i, node in enumerate(graph.nodes):
        planned = _planned(i, node, kernels, types, specs, mesh)
        nodes.append(planned)
        problem = planned.problem
        for value, in_spec in zip(planned.operands, _present(problem.in_specs), strict=True):
            specs.setdefault(value, in_spec)
        for index, (kind, spec) in enumerate(zip(problem.results, problem.out_specs, strict=True)):
            types[Value(i, index)], specs[Value(i, index)] = kind, required(spec)
    for i, kind in enumerate(inputs):
        specs.setdefault(Value(-1, i), rows_over_all(kind.ndim, mesh))
    in_order = tuple(specs[Value(-1, i)] for i in range(len(inputs)))
    return GraphPlan(tuple(nodes), in_order, specs, tuple(types[value] for value in graph.results))


def check_derivatives(plan: GraphPlan, active: set[Value], plan_within: Callable[[Problem], GraphPlan]) -> None:
    """Checks that a graph has derivatives.

    Args:
        plan: the plan of the graph.
        active: the inputs that the derivatives are with respect to.
        plan_within: returns the plan of a node that is a graph.

    Raises:
        CallError: for a call that depends on these inputs and has no derivative.
    """
    active = set(active)
    for i, node in enumerate(plan.nodes):
        kinds = [kind for kind in node.problem.operands if kind is not None]
        depends = [value in active and is_inexact(kind.dtype) for value, kind in zip(node.operands, kinds, strict=True)]
        made = [Value(i, k) for k, kind in enumerate(node.problem.results) if is_inexact(kind.dtype)]
        if not any(depends) or not made:
            continue
        if why := refusal(node.kernel, node.problem, depends):
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"node {i}, {node.kernel.name}: it cannot be differentiated: {why}",
                field="graph",
            )
        if node.kernel.name == GRAPH:
            within = plan_within(node.problem)
            inputs = zip(range(len(within.in_specs)), depends, strict=False)
            check_derivatives(within, {Value(-1, k) for k, each in inputs if each}, plan_within)
        active.update(made)


def _planned(
    index: int,
    node: Node,
    kernels: Kernels,
    types: Mapping[Value, ArrayType],
    specs: Mapping[Value, Spec],
    mesh: MeshAxes,
) -> PlannedNode:
    kernel = _kernel(kernels, index, node)
    operands = [None if value is None else types[value] for value in node.operands]
    asked = [*node.in_specs, *[None] * (len(operands) - len(node.in_specs))]
    own = [None if value is None else specs.get(value) for value in node.operands]
    in_specs = tuple(spec or own[i] if i < len(own) else spec for i, spec in enumerate(asked))
    try:
        problem, strategy, _ = fill_in(
            kernel, operands, dict(node.parameters), mesh, in_specs, node.out_specs, node.strategy or AUTO
        )
    except CallError as error:
        raise _of_node(index, node, error) from None
    # A layout that is left to the compiler could not be planned with.
    out_specs = (
        rows_over_all(result.ndim, mesh) if spec is None else spec
        for result, spec in zip(problem.results, problem.out_specs, strict=True)
    )
    problem = replace(problem, out_specs=tuple(out_specs))
    if why := strategy.refusal(problem):
        message = f"strategy {strategy.name!r} cannot serve this layout: {why}"
        raise _of_node(index, node, CallError(Reason.STRATEGY_UNSUPPORTED, message))
    return PlannedNode(kernel, tuple(value for value in node.operands if value is not None), problem, strategy)


def _present(specs: Specs) -> list[Spec]:
    return [spec for spec in specs if spec is not None]


def _kernel(kernels: Kernels, index: int, node: Node) -> Kernel:
    if (kernel := kernels.get(node.kernel)) is None:
        near = did_you_mean(node.kernel, kernels)
        raise _refused(
            f"has a node {index} of kernel {shorten(node.kernel)!r}, which cannot be in a graph; {shorten(near)}"
        )
    return kernel


def _type(types: Mapping[Value, ArrayType], value: Value) -> ArrayType:
    if value not in types:
        kind = f"input {value.number}" if value.node < 0 else f"result {value.number} of node {value.node}"
        raise _refused(f"refers to {kind}, which there is not")
    return types[value]


def _named(index: int, node: Node) -> str:
    return f"node {index}, {shorten(node.kernel)}"


def _of_node(index: int, node: Node, error: CallError) -> CallError:
    return CallError(error.reason, f"{_named(index, node)}: {error.message}", field="graph", metadata=error.metadata)


def _refused(what: str) -> CallError:
    return CallError(Reason.INVALID_PARAMETER, f"graph {what}", field="graph")
