"""The canonical form of graphs: equal computations have equal forms."""

from __future__ import annotations

from collections.abc import Mapping

from shardcall_core.graphs.graph import BODIES, SLICES, Constant, Graph, Node, NodeSpec, Value, values_of


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

    Args:
        graph: the graph.
        constants: the inputs that are parts of the program where nodes take them, but not as operands of loops and
            branches, or as results.
        exact: whether these are bounds of slices only, since the compiler computes with other constants in advance.

    Attributes:
        nodes: the nodes that a walk has come to.
        inputs: the inputs that it has come to, and their new numbers.
        indices: the new indices of the nodes that it has come to.
        graph: the form.
    """

    def __init__(self, graph: Graph, constants: Mapping[int, Constant] | None = None, *, exact: bool = False) -> None:
        self.nodes: list[Node] = []
        self.inputs: dict[int, int] = {}
        self.indices: dict[int, int] = {}
        self._graph = graph
        self._constants = constants or {}
        self._exact = exact
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
            node = self._graph.nodes[index]
            for operand in values_of(node):
                if operand.node < 0:
                    self._operand(node, operand)
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

    def _operand(self, node: Node, operand: Value | Constant | None) -> Value | Constant | None:
        """Returns an operand of a node, whose own nodes are numbered."""
        if not isinstance(operand, Value):
            return operand
        takes_constants = node.kernel in SLICES if self._exact else node.kernel not in BODIES
        if takes_constants and operand.node < 0 and operand.number in self._constants:
            return self._constants[operand.number]
        return self._renamed(operand)

    def _add(self, index: int) -> None:
        """Numbers a node whose operands are numbered."""
        node = self._graph.nodes[index]
        new = node._replace(
            operands=tuple(self._operand(node, operand) for operand in node.operands),
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
