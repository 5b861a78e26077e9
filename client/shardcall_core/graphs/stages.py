"""Stages of graphs: the parts before, between and behind loops that run in slices, each a call of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardcall_core.graphs.canonical import CanonicalForm
from shardcall_core.graphs.graph import Constant, Graph, Node, NodeParameter, Value, is_dynamic, values_of


@dataclass(frozen=True)
class Stage:
    """A call of the kernel ``graph``.

    Attributes:
        parameters: its parameters.
        operands: its operands: inputs of the complete graph, and results of earlier stages by the indices of these.
        results: the values of the complete graph that are its results.
        nodes: for each of its nodes, the index of that node in the complete graph; empty for a loop, whose graph is
            its body.
    """

    parameters: Mapping[str, NodeParameter]
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    nodes: tuple[int, ...] = ()

    @property
    def graph(self) -> Graph:
        """Its graph."""
        graph = self.parameters["graph"]
        assert isinstance(graph, Graph)
        return graph


def is_stage(node: Node) -> bool:
    """Returns True for a loop whose number of iterations is an operand, which runs in slices."""
    parameters = dict(node.parameters)
    return is_dynamic(node.kernel, parameters.get("carried"), parameters.get("count"))


def stages_of(graph: Graph) -> list[Stage]:
    """Returns the stages of a graph in its canonical form.

    Every result of the graph is a result of one stage; inputs that are results belong to the first stage.
    """
    groups: dict[tuple[int, int], list[int]] = {}
    levels = _levels(graph)
    for i, level in enumerate(levels):
        groups.setdefault((level, i if level % 2 else -1), []).append(i)
    if any(value.node < 0 for value in graph.results):
        groups.setdefault((0, -1), [])
    stages: list[Stage] = []
    for (level, _), indices in sorted(groups.items()):
        if level % 2:
            stages.append(_loop_stage(indices[0], graph, stages))
        else:
            stages.append(_plain_stage(indices, graph, stages, takes_inputs=level == 0))
    return stages


def result_of(value: Value, stages: Sequence[Stage]) -> Value:
    """Returns a value as a result of a stage: the indices of both; an input that no stage returns is unchanged."""
    for i, stage in enumerate(stages):
        if value in stage.results:
            return Value(i, stage.results.index(value))
    return value


def _levels(graph: Graph) -> list[int]:
    """Returns the level of each node: odd for loops that run in slices, each above the nodes that it needs."""
    levels: list[int] = []
    for node in graph.nodes:
        below = max((levels[value.node] for value in values_of(node) if value.node >= 0), default=0)
        levels.append(below + 1 + below % 2 if is_stage(node) else below + below % 2)
    return levels


def _loop_stage(index: int, graph: Graph, stages: Sequence[Stage]) -> Stage:
    node = graph.nodes[index]
    parameters = dict(node.parameters)
    carried = parameters["carried"]
    assert isinstance(carried, tuple)
    operands = tuple(result_of(value, stages) for value in values_of(node))
    return Stage(parameters, operands, tuple(Value(index, i) for i in range(len(carried))))


def _plain_stage(indices: Sequence[int], graph: Graph, stages: Sequence[Stage], *, takes_inputs: bool) -> Stage:
    numbers = {old: new for new, old in enumerate(indices)}
    outside: dict[Value, int] = {}

    def operand(item: Value | Constant | None) -> Value | Constant | None:
        return inside(item) if isinstance(item, Value) else item

    def inside(value: Value) -> Value:
        if value.node in numbers:
            return Value(numbers[value.node], value.number)
        return Value(-1, outside.setdefault(value, len(outside)))

    nodes = tuple(
        node._replace(operands=tuple(map(operand, node.operands))) for node in (graph.nodes[i] for i in indices)
    )
    others = (node for i, node in enumerate(graph.nodes) if i not in numbers)
    needed = [value for node in others for value in values_of(node) if value.node in numbers]
    returned = [value for value in graph.results if value.node in numbers or (takes_inputs and value.node < 0)]
    results = tuple(dict.fromkeys((*returned, *needed)))
    form, values = CanonicalForm(Graph(nodes, tuple(map(inside, results)))), list(outside)
    olds = {new: indices[old] for old, new in form.indices.items()}
    return Stage(
        {"graph": form.graph},
        tuple(result_of(values[i], stages) for i in form.inputs),
        results,
        tuple(olds[i] for i in range(len(form.nodes))),
    )
