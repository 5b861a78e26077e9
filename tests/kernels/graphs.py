"""Graphs written as calls."""

from collections.abc import Sequence
from typing import Any

from shardcall_core.graphs.canonical import canonical
from shardcall_core.graphs.graph import Graph, Node, Value, parameters_of


class GraphWriter:
    """Writes the nodes of a graph one after the other; inputs are `x(0)`, `x(1)`, …."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    @staticmethod
    def x(index: int) -> Value:
        """An input."""
        return Value(-1, index)

    def __call__(self, kernel: str, *operands: Value | None, **parameters: object) -> Value:
        """Adds a node; returns its first result."""
        self.nodes.append(Node(kernel, operands, parameters_of(list(parameters.items()))))
        return Value(len(self.nodes) - 1, 0)

    def call(self, results: Sequence[Value], inputs: Sequence[Any] = ()) -> tuple[Graph, list[Any]]:
        """The graph in its canonical form, and the inputs that remain in it."""
        graph, used = canonical(Graph(tuple(self.nodes), tuple(results)))
        return graph, [inputs[i] for i in used] if inputs else used

    def graph(self, *results: Value) -> Graph:
        """The graph in its canonical form."""
        return self.call(results)[0]


def heat_step(write: GraphWriter) -> Value:
    """A step of the heat equation of x(0); x(1) is the step size, and x(2) 4."""
    u = write.x(0)
    up, down, left, right = (write("roll", u, shift=s, axis=a) for a in (0, 1) for s in (1, -1))
    total = write("add", write("add", write("add", up, down), left), right)
    change = write("subtract", total, write("multiply", write.x(2), u))
    return write("add", u, write("multiply", write.x(1), change))
