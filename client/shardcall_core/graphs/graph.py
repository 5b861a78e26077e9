"""Graphs of kernel calls that run as one program, and their text.

A graph has inputs, numbered from 0, and nodes, each a call of a kernel with inputs or results of earlier nodes as its
operands. Its text is the static parameter of the server's kernel ``graph``, so equal graphs must have equal texts: a
text is JSON without spaces, and `shardcall_core.graphs.canonical` numbers what is in it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from reprlib import repr as short_repr
from typing import Any, NamedTuple, TypeAlias

MAX_NODES = 256
"""The most nodes of a graph."""

MAX_CHARACTERS = 1 << 15
"""The most characters of a text."""

MAX_ITEMS = 64
"""The most operands, results, parameters and integers of one list."""

BODIES = {"graph": ("graph",), "scan": ("graph",), "cond": ("then", "otherwise"), "vmap": ("graph",)}
"""The kernels that run graphs, and their parameters that are texts of these."""

WITHOUT_DERIVATIVE = (
    "a loop has no derivative whose number of iterations is an argument or depends on values, such as a while_loop; "
    "give fori_loop or repeat a number that is fixed, or use scan"
)
"""The reason why a program with a loop for which `is_dynamic` is True has no derivatives, as a clause."""

_INT64 = range(-(2**63), 2**63)

NodeParameter: TypeAlias = bool | int | float | str | tuple[int, ...] | None
"""The value of a static parameter."""

NodeSpec: TypeAlias = tuple[tuple[str, ...], ...]
"""For each axis of an array the mesh axes that shard it."""


class Value(NamedTuple):
    """An input, or a result of a node.

    Attributes:
        node: the index of the node; -1 for an input.
        number: the index of the result, or of the input.
    """

    node: int
    number: int


class Node(NamedTuple):
    """A call of a kernel.

    Attributes:
        kernel: the name of the kernel.
        operands: the source of each operand; None for one left out.
        parameters: the static parameters by name, in alphabetical order.
        strategy: the strategy; empty for the kernel's rule.
        in_specs: the spec of each operand; None, or a shorter tuple, for its own.
        out_specs: the spec of each result; None, or a shorter tuple, for the kernel's default.
    """

    kernel: str
    operands: tuple[Value | None, ...]
    parameters: tuple[tuple[str, NodeParameter], ...] = ()
    strategy: str = ""
    in_specs: tuple[NodeSpec | None, ...] = ()
    out_specs: tuple[NodeSpec | None, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A graph of kernel calls.

    Attributes:
        nodes: the calls; operands are results of earlier ones.
        results: the values that are returned.
    """

    nodes: tuple[Node, ...]
    results: tuple[Value, ...]

    @property
    def input_count(self) -> int:
        """The number of inputs, which is one more than the largest index of one."""
        operands = (value for node in self.nodes for value in node.operands)
        return 1 + max((value.number for value in (*operands, *self.results) if value and value.node < 0), default=-1)


def bodies_of(node: Node) -> list[str]:
    """Returns the texts of the graphs that a node runs; of branches, the one for a false condition comes first."""
    names = BODIES.get(node.kernel, ())
    return [value for name, value in node.parameters if name in names and isinstance(value, str)]


def is_loop(node: Node) -> bool:
    """Returns True for a node that runs a graph several times."""
    return node.kernel == "scan" or (node.kernel == "graph" and bool(dict(node.parameters).get("carried")))


def is_dynamic(kernel: str, carried: object, count: object) -> bool:
    """Returns True for a loop whose number of iterations is an operand or depends on values.

    Args:
        kernel: the name of the kernel.
        carried: its parameter of that name.
        count: its parameter of that name.
    """
    return kernel == "graph" and bool(carried) and not count


def has_loops(nodes: Sequence[Node]) -> bool:
    """Returns True if there is a loop among nodes or in the graphs that they run."""
    return any(is_loop(node) or any(has_loops(from_text(body).nodes) for body in bodies_of(node)) for node in nodes)


def node_count(graph: Graph) -> int:
    """Returns the number of nodes of a graph, those of the graphs in it included.

    Raises:
        ValueError: if a text in it is not that of a graph.
    """
    return len(graph.nodes) + sum(node_count(from_text(body)) for node in graph.nodes for body in bodies_of(node))


def to_text(graph: Graph) -> str:
    """Returns the text of a graph.

    An integer n stands for the first result of node n, the list [n, i] for another one, and -1 - k for input k.
    """
    nodes = [_trimmed([node.kernel, *_arguments(node)]) for node in graph.nodes]
    data = {"nodes": nodes, "results": [_reference(value) for value in graph.results]}
    return json.dumps(data, separators=(",", ":"), sort_keys=True)


def from_text(text: str) -> Graph:
    """Returns the graph of a text.

    Raises:
        ValueError: if the text is not one that `to_text` returns.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"has {len(text)} characters; a graph has at most {MAX_CHARACTERS}")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if type(data) is not dict or set(data) != {"nodes", "results"}:
        raise ValueError('is not an object with "nodes" and "results"')
    nodes = tuple(_node(i, item) for i, item in enumerate(_items(data["nodes"], "nodes", MAX_NODES)))
    results = tuple(_value(len(nodes), item) for item in _items(data["results"], "results", MAX_ITEMS))
    if not results:
        raise ValueError("has no results")
    graph = Graph(nodes, results)
    if to_text(graph) != text:
        raise ValueError("is not in its canonical form, without spaces, repeated names and empty parts at the end")
    return graph


def _arguments(node: Node) -> list[Any]:
    options = {"strategy": node.strategy, "in_specs": node.in_specs, "out_specs": node.out_specs}
    return [
        [None if value is None else _reference(value) for value in node.operands],
        dict(node.parameters),
        {name: value for name, value in options.items() if value},
    ]


def _trimmed(items: list[Any]) -> list[Any]:
    while len(items) > 1 and not items[-1]:
        items.pop()
    return items


def _reference(value: Value) -> int | list[int]:
    if value.node < 0:
        return -1 - value.number
    return [value.node, value.number] if value.number else value.node


def _items(value: Any, what: str, max_count: int) -> list[Any]:
    if type(value) is not list or len(value) > max_count:
        raise ValueError(f"has {what} that are no list of at most {max_count}")
    return value


def _node(index: int, item: Any) -> Node:
    parts = _items(item, "nodes", 4)
    defaults: list[Any] = ["", [], {}, {}]
    kernel, operands, parameters, options = parts + defaults[len(parts) :]
    if not kernel or type(kernel) is not str or type(parameters) is not dict or type(options) is not dict:
        raise ValueError(f"has a node {index} that is not its kernel, operands, parameters and options")
    if not options.keys() <= {"strategy", "in_specs", "out_specs"} or type(options.get("strategy", "")) is not str:
        raise ValueError(f"has a node {index} with options other than strategy, in_specs and out_specs")
    if len(parameters) > MAX_ITEMS:
        raise ValueError(f"has a node {index} with {len(parameters)} parameters; at most {MAX_ITEMS} are allowed")
    return Node(
        kernel,
        tuple(None if o is None else _value(index, o) for o in _items(operands, "operands", MAX_ITEMS)),
        tuple(sorted((name, _parameter(name, value)) for name, value in parameters.items())),
        options.get("strategy", ""),
        _specs(options.get("in_specs", [])),
        _specs(options.get("out_specs", [])),
    )


def _value(before: int, item: Any) -> Value:
    """Returns the value of a reference in a node, or behind all of ``before`` nodes."""
    pair = item if type(item) is list and len(item) == 2 else [item, 0]
    if any(type(number) is not int for number in pair) or not (0 <= pair[1] < MAX_ITEMS):
        raise ValueError("has a reference that is neither an integer nor a node and the index of its result")
    if not -MAX_ITEMS <= pair[0] < before:
        raise ValueError(f"refers to {pair[0]} where there are {before} nodes before")
    return Value(-1, -1 - pair[0]) if pair[0] < 0 else Value(pair[0], pair[1])


def _parameter(name: str, value: Any) -> NodeParameter:
    if type(value) is list:
        items = _items(value, f"integers of {short_repr(name)}", MAX_ITEMS)
        if all(type(item) is int and item in _INT64 for item in items):
            return tuple(items)
    elif value is None or type(value) in (bool, float, str) or (type(value) is int and value in _INT64):
        return value  # type: ignore[no-any-return]
    raise ValueError(f"has a parameter {short_repr(name)} that is no number, text or list of integers of 64 bits")


def _specs(value: Any) -> tuple[NodeSpec | None, ...]:
    return tuple(None if item is None else _spec(item) for item in _items(value, "specs", MAX_ITEMS))


def _spec(item: Any) -> NodeSpec:
    entries = [_items(names, "an entry of a spec", MAX_ITEMS) for names in _items(item, "a spec", MAX_ITEMS)]
    if any(type(name) is not str for names in entries for name in names):
        raise ValueError("has a spec whose entries are no lists of names")
    return tuple(map(tuple, entries))


def parameters_of(values: Sequence[tuple[str, Any]]) -> tuple[tuple[str, NodeParameter], ...]:
    """Returns the parameters of a node, sorted, lists as tuples."""
    return tuple(sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in values))
