"""The canonical form of graphs: equal computations have equal forms."""

from __future__ import annotations

from shardcall_core.graphs.graph import Graph, Node, NodeSpec, Value


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
        waiting = [value.node]  # and no recursion: a chain may be longer than Python's stack
        while waiting:
            index = waiting[-1]
            if index < 0 or index in self.indices:
                waiting.pop()
                continue
            for operand in self._graph.nodes[index].operands:
                if operand is None:
                    continue
                if operand.node < 0:
                    self.inputs.setdefault(operand.number, len(self.inputs))
                elif operand.node not in self.indices:
                    waiting.append(operand.node)
                    break
            else:
                self._add(waiting.pop())
        return self._renamed(value)

    def _renamed(self, value: Value) -> Value:
        if value.node < 0:
            return Value(-1, self.inputs.setdefault(value.number, len(self.inputs)))
        return Value(self.indices[value.node], value.number)

    def _add(self, index: int) -> None:
        """Numbers a node whose operands are numbered."""
        node = self._graph.nodes[index]
        new = node._replace(
            operands=tuple(None if value is None else self._renamed(value) for value in node.operands),
            in_specs=_trimmed(node.in_specs),
            out_specs=_trimmed(node.out_specs),
        )
        key = repr(new)  # 1, True and 1.0 are equal
        if key not in self._equal:
            self._equal[key] = len(self.nodes)
            self.nodes.append(new)
        self.indices[index] = self._equal[key]


def _trimmed(specs: tuple[NodeSpec | None, ...]) -> tuple[NodeSpec | None, ...]:
    """Returns specs without those at the end that are unset."""
    while specs and specs[-1] is None:
        specs = specs[:-1]
    return specs
