"""The canonical form of graphs: equal computations have equal forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from shardcall._src.graphs.graph import Graph, Node, Value


def canonical(graph: Graph) -> tuple[Graph, list[int]]:
    """Returns the canonical form of a graph, and the inputs that it uses.

    Nodes and inputs are numbered in the order in which a walk from the results, operands first, comes to them. Nodes
    that no result needs are left out, and of equal nodes all but one.

    Returns:
        The graph, and for each of its inputs the index of that input in the graph given.
    """
    form = CanonicalForm(graph)
    return form.graph, list(form.inputs)


class CanonicalForm:
    """The canonical form of a graph.

    Attributes:
        nodes: the nodes that a walk has come to.
        inputs: the inputs that it has come to, and their new numbers.
        indices: the new indices of the nodes that it has come to.
        graph: the form.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.inputs: dict[int, int] = {}
        self.indices: dict[int, int] = {}
        self._graph = graph
        self._equal: dict[str, int] = {}
        results = tuple(self.renumbered(value) for value in graph.results)
        self.graph = Graph(tuple(self.nodes), results)

    def renumbered(self, value: Value) -> Value:
        """Returns a value of the graph by its new number, after a walk to it."""
        if value.node < 0:
            return Value(-1, self.inputs.setdefault(value.number, len(self.inputs)))
        waiting = [self._steps(value.node)]
        while waiting:  # and no recursion: a chain may be longer than Python's stack
            operand = next(waiting[-1], None)
            if operand is None:
                waiting.pop()
            elif operand not in self.indices:
                waiting.append(self._steps(operand))
        return Value(self.indices[value.node], value.number)

    def _steps(self, index: int) -> Iterator[int]:
        """Yields the nodes that a node needs; then numbers it."""
        if index in self.indices:
            return
        node = self._graph.nodes[index]
        operands: list[Value | None] = []
        for value in node.operands:
            if value is None:
                operands.append(None)
                continue
            if value.node < 0:
                operands.append(Value(-1, self.inputs.setdefault(value.number, len(self.inputs))))
                continue
            yield value.node
            operands.append(Value(self.indices[value.node], value.number))
        new = replace(node, operands=tuple(operands))
        key = repr(new)  # 1, True and 1.0 are equal
        if key not in self._equal:
            self._equal[key] = len(self.nodes)
            self.nodes.append(new)
        self.indices[index] = self._equal[key]
