"""Builds programs of calls, whether these are traced or recorded."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from shardcall_core.graphs.canonical import CanonicalForm
from shardcall_core.graphs.graph import Constant, Graph, Node, Value, values_of

Input = TypeVar("Input")


class ProgramBuilder(Generic[Input]):
    """Calls that become a program.

    Attributes:
        nodes: the calls.
        inputs: what they take that is no result of another.
        keys: the keys of the inputs.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[Input] = []
        self.keys: dict[Hashable, int] = {}

    def add_node(self, node: Node) -> int:
        """Adds a call, whose operands are values of this program; returns its index."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def add_input(self, key: Hashable, item: Input) -> Value:
        """Returns an input; those with equal keys are one."""
        number = self.keys.get(key)
        if number is None:
            number = len(self.inputs)
            self.inputs.append(item)
            self.keys[key] = number  # last: this thread may be interrupted
        return Value(-1, number)

    def form(
        self, results: Iterable[Value], constants: Mapping[int, Constant] | None = None, *, exact: bool = True
    ) -> CanonicalForm:
        """Returns the canonical form of the calls that some results need.

        Args:
            results: the results.
            constants: the inputs that are parts of the program, as of `CanonicalForm`.
            exact: whether these are bounds of slices only.
        """
        return CanonicalForm(Graph(tuple(self.nodes), tuple(results)), constants, exact=exact)


def sources_of(node: Node) -> list[Value | None]:
    """Returns the operands of a node of a builder, which has no constants."""
    return [value for value in node.operands if value is None or isinstance(value, Value)]


def needed_nodes(nodes: Sequence[Node], results: Iterable[int]) -> list[int]:
    """Returns the indices of the calls that the results of some need, and of these, in order."""
    needed = set(results)
    for i in reversed(range(len(nodes))):
        if i in needed:
            needed.update(value.node for value in values_of(nodes[i]) if value.node >= 0)
    return sorted(needed)
