"""Plans of graphs: the layout and the strategy of every node, decided in order."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, runtime_checkable

from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.element_types import is_inexact
from shardcall_core.functions.argument_checks import check_operands, check_parameters
from shardcall_core.functions.signature import Signature, ValueCheck
from shardcall_core.graphs.graph import SLICES, Constant, Graph, Node, Value, bodies_of, is_loop, values_of
from shardcall_core.graphs.node_names import with_node
from shardcall_core.layouts.layout import ArrayType, MeshAxes, OperandTypes, Spec, Specs, required, row_sharding
from shardcall_server.kernels.array_functions.slices import is_short_write
from shardcall_server.kernels.core.call_checks import AUTO, fill_in
from shardcall_server.kernels.core.kernel import Kernel, Problem, Strategy
from shardcall_server.kernels.graphs.derivatives import GRAPH, VMAP, refusal
from shardcall_server.kernels.graphs.folding import folds_transposes, with_transposed_operand
from shardcall_server.kernels.stencils.stencil import StencilKernel

_MAX_IN_A_CHAIN = 64

_CHAINED = frozenset(("shift", "pad"))
"""The kernels whose long chains XLA cannot compile: it ends the process, or takes minutes (jaxlib 0.10.1)."""

MAX_VALUE_BYTES = 1 << 44
"""The maximum bytes of a value inside a program; XLA may compute a value without storing it."""

MAX_WORK_BYTES = 1 << 38
"""The maximum work (`Kernel.work_bytes`) of a loop's calls in one launch, which nothing can interrupt."""

Kernels = Mapping[str, Kernel]


@runtime_checkable
class _SupportsPlans(Protocol):
    """A kernel that runs graphs."""

    name: ClassVar[str]

    def plans(self, problem: Problem) -> Sequence[GraphPlan]:
        """Returns the plans of the graphs of a call."""


@dataclass(frozen=True)
class GraphTypes:
    """The types of a graph that `types_of` accepts.

    Attributes:
        types: the type of every value.
        checks: the checks of all nodes.
        work_bytes: an estimate of the bytes that its nodes read and write.
    """

    types: Mapping[Value, ArrayType]
    checks: Sequence[ValueCheck]
    work_bytes: int


@dataclass(frozen=True)
class PlannedNode:
    """A node with the defaults of its call filled in.

    Attributes:
        kernel: the kernel.
        operands: the operands that are present.
        problem: the problem that the strategy solves; every spec is set.
        strategy: the strategy.
        out_specs: the spec that each result is moved to.
    """

    kernel: Kernel
    operands: tuple[Value | Constant, ...]
    problem: Problem
    strategy: Strategy
    out_specs: tuple[Spec, ...]


@dataclass(frozen=True)
class GraphPlan:
    """The plan of a graph.

    Attributes:
        nodes: its nodes.
        in_specs: the spec of each input.
        specs: the spec of every value.
        results: the types of its results.
        joined: the indices of the nodes that are computed in regions, together with others.
    """

    nodes: tuple[PlannedNode, ...]
    in_specs: tuple[Spec, ...]
    specs: Mapping[Value, Spec]
    results: tuple[ArrayType, ...]
    joined: frozenset[int] = frozenset()


def types_of(graph: Graph, kernels: Kernels, inputs: Sequence[ArrayType]) -> GraphTypes:
    """Checks the calls of a graph.

    Raises:
        CallError: for a call that its kernel refuses, for values that do not exist, and for a loop that would compute
            for too long.
    """
    types = {Value(-1, i): array_type for i, array_type in enumerate(inputs)}
    checks: list[ValueCheck] = []
    work_bytes = 0
    _check_chains(graph)
    checked: dict[Hashable, tuple[Signature, int]] = {}
    for i, node in enumerate(graph.nodes):
        kernel = _kernel(kernels, i, node)
        operands = [None if value is None else _type(types, value) for value in node.operands]
        key = _call_of(node), *operands
        if key not in checked:
            try:
                present = check_operands(kernel, operands)
                signature: Signature = kernel.validate(present, check_parameters(kernel, dict(node.parameters)))
                checked[key] = signature, _checked_work(kernel, node, present, signature)
            except CallError as error:
                raise _of_node(i, node.kernel, error) from None
        signature, node_bytes = checked[key]
        work_bytes += node_bytes
        for index, result in enumerate(signature.results):
            if result.span_bytes > MAX_VALUE_BYTES:
                too_large = CallError(Reason.INVALID_PARAMETER, f"the result, {shorten(str(result))}, is too large")
                raise _of_node(i, node.kernel, too_large)
            types[Value(i, index)] = result
        checks += [replace(check, message=with_node(i, node.kernel, check.message)) for check in signature.checks]
    for value in graph.results:
        _type(types, value)
    return GraphTypes(types, tuple(checks), work_bytes)


def _check_chains(graph: Graph) -> None:
    lengths: list[int] = []
    for i, node in enumerate(graph.nodes):
        before = max((lengths[value.node] for value in values_of(node) if 0 <= value.node < i), default=0)
        lengths.append(before + 1 if node.kernel in _CHAINED else 0)
        if lengths[i] > _MAX_IN_A_CHAIN:
            why = (
                f"{lengths[i]} calls of {' and '.join(sorted(_CHAINED))} take each other's results, and at most "
                f"{_MAX_IN_A_CHAIN} are allowed, since the compiler does not end with more; write a loop, such as "
                "xp.fori_loop, or call the parts one by one"
            )
            raise _of_node(i, node.kernel, CallError(Reason.NOT_SUPPORTED, why))


def _checked_work(kernel: Kernel, node: Node, operands: OperandTypes, signature: Signature) -> int:
    work_bytes = kernel.work_bytes(operands, signature)
    is_batched_loop = node.kernel == VMAP and any(body.has_loops for body in bodies_of(node))
    if (is_loop(node) or is_batched_loop) and work_bytes > MAX_WORK_BYTES:
        raise CallError(
            Reason.NOT_SUPPORTED,
            f"the loop would take about as long as reading and writing {work_bytes:,} bytes in one launch, and at most "
            f"{MAX_WORK_BYTES:,} are allowed; make it the outermost loop, which runs in slices, or compute less in an "
            "iteration",
            field="graph",
        )
    return work_bytes


def plan_of(graph: Graph, kernels: Kernels, inputs: Sequence[ArrayType], in_specs: Specs, mesh: MeshAxes) -> GraphPlan:
    """Plans the nodes of a graph that `types_of` accepts.

    The specs of a node's results are known before the next node is planned. An input without a spec takes the one that
    the first kernel that uses it fills in.

    Raises:
        CallError: for specs and strategies that a node cannot have.
    """
    types = {Value(-1, i): array_type for i, array_type in enumerate(inputs)}
    specs = {Value(-1, i): spec for i, spec in enumerate(in_specs) if spec is not None}
    nodes: list[PlannedNode] = []
    plans: dict[Hashable, PlannedNode] = {}
    for i, of_graph in enumerate(graph.nodes):
        node = _with_folded_transposes(_with_earlier_array(of_graph, graph, nodes, specs), nodes, specs)
        operands = tuple(None if item is None else _type(types, item) for item in node.operands)
        operand_specs = tuple(specs.get(item) if isinstance(item, Value) else None for item in node.operands)
        key = _call_of(node), operands, operand_specs, _constants(node)
        if key not in plans:
            plans[key] = _planned(i, node, kernels, operands, operand_specs, mesh)
        planned = replace(plans[key], operands=tuple(value for value in node.operands if value is not None))
        nodes.append(planned)
        problem = planned.problem
        for value, in_spec in zip(planned.operands, _present(problem.in_specs), strict=True):
            if isinstance(value, Value):
                specs.setdefault(value, in_spec)
        for index, (array_type, spec) in enumerate(zip(problem.results, planned.out_specs, strict=True)):
            types[Value(i, index)], specs[Value(i, index)] = array_type, spec
    for i, array_type in enumerate(inputs):
        specs.setdefault(Value(-1, i), row_sharding(array_type.ndim, mesh))
    in_order = tuple(specs[Value(-1, i)] for i in range(len(inputs)))
    return GraphPlan(tuple(nodes), in_order, specs, tuple(types[value] for value in graph.results))


def check_derivatives(plan: GraphPlan, active: set[Value]) -> None:
    """Checks that a graph has derivatives.

    Args:
        plan: the plan of the graph.
        active: the inputs that the derivatives are with respect to.

    Raises:
        CallError: for a call that depends on these inputs and has no derivative.
    """
    active = set(active)
    for i, node in enumerate(plan.nodes):
        operand_types = [operand for operand in node.problem.operands if operand is not None]
        depends = [
            value in active and is_inexact(operand.dtype)
            for value, operand in zip(node.operands, operand_types, strict=True)
        ]
        dependent = [Value(i, k) for k, result in enumerate(node.problem.results) if is_inexact(result.dtype)]
        if not any(depends) or not dependent:
            continue
        if why := refusal(node.kernel, node.problem, depends):
            refused = CallError(Reason.INVALID_PARAMETER, f"it cannot be differentiated: {why}")
            raise _of_node(i, node.kernel.name, refused)
        if node.kernel.name == "roll" and node.strategy.name == "gspmd" and node.problem.parameters.axis is not None:
            # XLA's derivative is wrong where the operand is replicated over one of several axes (jaxlib 0.10.1).
            message = "strategy 'gspmd' cannot be differentiated along an axis; leave the strategy out"
            raise _of_node(i, node.kernel.name, CallError(Reason.STRATEGY_UNSUPPORTED, message))
        if isinstance(node.kernel, _SupportsPlans):
            is_plain = node.kernel.name == VMAP or (node.kernel.name == GRAPH and not node.problem.parameters.carried)
            for within in node.kernel.plans(node.problem):
                # In a loop, a value that depends on an input may become any other input.
                inputs = {k for k in range(len(within.in_specs)) if not is_plain or depends[k]}
                try:
                    check_derivatives(within, {Value(-1, k) for k in inputs})
                except CallError as error:
                    raise _of_node(i, node.kernel.name, error) from None
        active.update(dependent)


def _planned(
    index: int,
    node: Node,
    kernels: Kernels,
    operands: OperandTypes,
    planned_specs: Specs,
    mesh: MeshAxes,
) -> PlannedNode:
    """Returns the plan of a node.

    Args:
        index: its index.
        node: the node.
        kernels: the kernels of nodes.
        operands: the types of its operands.
        planned_specs: the specs of its operands, of those that are known.
        mesh: the mesh.
    """
    kernel = _kernel(kernels, index, node)
    asked = [*node.in_specs, *[None] * (len(operands) - len(node.in_specs))]
    in_specs = tuple(spec or planned_specs[i] if i < len(planned_specs) else spec for i, spec in enumerate(asked))
    # A stencil that the compiler partitions takes several times as long in a loop, so the halo is exchanged and the
    # result is moved.
    is_moved = isinstance(kernel, StencilKernel) and not node.strategy
    asked_out = () if is_moved else node.out_specs
    try:
        problem, strategy, _ = fill_in(
            kernel, operands, dict(node.parameters), mesh, in_specs, asked_out, node.strategy or AUTO, _constants(node)
        )
        checked = problem
        if is_moved and node.out_specs:
            checked, _, _ = fill_in(kernel, operands, dict(node.parameters), mesh, in_specs, node.out_specs, AUTO)
    except CallError as error:
        raise _of_node(index, node.kernel, error) from None
    # The nodes after this one are planned with its layout, so it cannot be left to the compiler.
    out_specs = (
        row_sharding(result.ndim, mesh) if spec is None else spec
        for result, spec in zip(problem.results, problem.out_specs, strict=True)
    )
    problem = replace(problem, out_specs=tuple(out_specs))
    if why := strategy.refusal(problem):
        message = f"strategy {strategy.name!r} cannot serve this layout: {why}"
        raise _of_node(index, node.kernel, CallError(Reason.STRATEGY_UNSUPPORTED, message))
    requested = (*node.out_specs, *[None] * (len(problem.results) - len(node.out_specs)))
    entries = zip(requested, checked.out_specs, problem.out_specs, strict=True)
    moved_specs = tuple(required(planned if spec is None else complete) for spec, complete, planned in entries)
    present = tuple(value for value in node.operands if value is not None)
    return PlannedNode(kernel, present, problem, strategy, moved_specs)


def _constants(node: Node) -> tuple[tuple[int, Constant], ...]:
    """Returns the operands of a node on which the program of its kernel depends, by their indices."""
    if node.kernel not in SLICES:
        return ()
    return tuple((i, item) for i, item in enumerate(node.operands) if isinstance(item, Constant))


def _with_earlier_array(node: Node, graph: Graph, nodes: Sequence[PlannedNode], specs: Mapping[Value, Spec]) -> Node:
    """Returns a write to an array as it was before a write to the same slice; any other node unchanged.

    Where the slice is long, the compiler chooses between the values and the array as it was, and the chain of the
    choices of n writes would be compiled, and run, with each of them.
    """
    x = node.operands[0] if node.kernel == "setitem" else None
    if not isinstance(x, Value) or x.node < 0:
        return node
    before, planned, starts = graph.nodes[x.node], nodes[x.node], node.operands[-1]
    if before._replace(operands=()) != node._replace(operands=()) or before.operands[-1] != starts:
        return node
    source, spec = planned.operands[0], specs[x]
    if not isinstance(starts, Constant) or not isinstance(source, Value) or specs.get(source) != spec:
        return node
    if is_short_write(planned.problem):  # which would copy the array as it was
        return node
    return node._replace(operands=(source, *node.operands[1:]))


def _with_folded_transposes(node: Node, nodes: Sequence[PlannedNode], specs: Mapping[Value, Spec]) -> Node:
    """Returns a product that takes its operands before nodes that transpose them in place; any other node unchanged."""
    for index, value in enumerate(node.operands):
        while isinstance(value, Value) and value.node >= 0 and folds_transposes(node, index):
            transpose, spec = nodes[value.node], specs[value]
            if transpose.kernel.name != "transpose":
                break
            axes, (source,) = transpose.problem.parameters.axes, transpose.operands
            if not isinstance(source, Value) or spec != tuple(specs[source][axis] for axis in axes):
                break  # the array is moved, too
            folded = with_transposed_operand(node, index, axes)
            if folded is None:
                break
            value = source  # noqa: PLW2901
            node = folded._replace(operands=(*node.operands[:index], source, *node.operands[index + 1 :]))
    return node


def _call_of(node: Node) -> Hashable:
    """Returns what equal calls have in common besides their operands; 1, 1.0 and True are other parameters."""
    return node.kernel, repr(node.parameters), node.strategy, node.in_specs, node.out_specs


def nodes_of(plan: GraphPlan) -> Iterator[PlannedNode]:
    """Yields the nodes of a plan, those of the graphs that they run included."""
    for node in plan.nodes:
        yield node
        for within in plans_within(node.kernel, node.problem):
            yield from nodes_of(within)


def plans_within(kernel: Kernel, problem: Problem) -> Sequence[GraphPlan]:
    """Returns the plans of the graphs that a call runs; none for a kernel that runs none."""
    return kernel.plans(problem) if isinstance(kernel, _SupportsPlans) else ()


def _present(specs: Specs) -> list[Spec]:
    return [spec for spec in specs if spec is not None]


def _kernel(kernels: Kernels, index: int, node: Node) -> Kernel:
    if (kernel := kernels.get(node.kernel)) is None:
        near = did_you_mean(node.kernel, kernels)
        raise _refused(
            f"has a node {index} of kernel {shorten(node.kernel)!r}, which cannot be in a graph; {shorten(near)}"
        )
    return kernel


def _type(types: Mapping[Value, ArrayType], value: Value | Constant) -> ArrayType:
    if isinstance(value, Constant):
        return ArrayType(value.shape, value.element_type)
    if value not in types:
        shown = f"input {value.number}" if value.node < 0 else f"result {value.number} of node {value.node}"
        raise _refused(f"refers to {shown}, which does not exist")
    return types[value]


def _of_node(index: int, kernel: str, error: CallError) -> CallError:
    message = with_node(index, kernel, error.message)
    return CallError(error.reason, message, field="graph", metadata=error.metadata)


def _refused(what: str) -> CallError:
    return CallError(Reason.INVALID_PARAMETER, f"graph {what}", field="graph")
