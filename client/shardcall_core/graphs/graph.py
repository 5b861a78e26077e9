"""Graphs of kernel calls that run as one program.

A graph has inputs, numbered from 0, and nodes, each a call of a kernel with inputs or results of earlier nodes as its
operands. It is the static parameter of the server's kernel ``graph``, so equal graphs must find the same program:
`shardcall_core.graphs.canonical` numbers what is in it, and `shardcall_core.graphs.messages` writes it as a message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, Union

import numpy as np

from shardcall_core.element_types import NAMED, DType

MAX_NODES = 4096
"""The maximum number of nodes of a graph, where those of a body count for every node that runs it."""

MAX_DEPTH = 16
"""The maximum number of graphs one in the other."""

MAX_BYTES = 1 << 20
"""The maximum bytes of a graph's message."""

MAX_VALUES = 1024
"""The maximum number of inputs, and of results, of a graph."""

MAX_ITEMS = 64
"""The maximum number of operands, results, parameters and specs of a node, and of integers of one list."""

SLICES = frozenset(("getitem", "setitem"))
"""The kernels whose constants are bounds of slices, which change the program of a kernel and no value."""

MAX_CONSTANT_BYTES = 512
"""The maximum bytes of a constant; that is an index of each axis of an array with the most axes."""

BODIES = {"graph": ("graph",), "scan": ("graph",), "cond": ("then", "otherwise"), "vmap": ("graph",)}
"""The kernels that run graphs, and their parameters that are graphs."""

WITHOUT_DERIVATIVE = (
    "a loop has no derivative whose number of iterations is an argument or depends on values, such as a while_loop; "
    "give fori_loop or repeat a number that is fixed, or use scan"
)
"""The reason why a program with a loop for which `is_dynamic` is True has no derivatives, as a clause."""

NodeParameter: TypeAlias = Union[bool, int, float, str, tuple[int, ...], "Graph", None]
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


class Constant(NamedTuple):
    """A small array that is a part of a program.

    Attributes:
        dtype: the name of its element type.
        shape: its shape.
        data: its elements in row-major order, little-endian.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @staticmethod
    def of(array: np.ndarray) -> Constant:
        """Returns an array as a constant."""
        dtype = array.dtype.newbyteorder("<")
        return Constant(array.dtype.name, array.shape, np.asarray(array, dtype).tobytes())

    @property
    def array(self) -> np.ndarray:
        """The array, read-only."""
        return np.frombuffer(self.data, self.element_type).reshape(self.shape)

    @property
    def element_type(self) -> DType:
        """Its element type."""
        return NAMED[self.dtype]


class Node(NamedTuple):
    """A call of a kernel.

    Attributes:
        kernel: the name of the kernel.
        operands: the source of each operand; None for one left out. Nodes that run graphs take no constants.
        parameters: the static parameters by name, in alphabetical order.
        strategy: the strategy; empty for the kernel's rule.
        in_specs: the spec of each operand; None, or a shorter tuple, for its own.
        out_specs: the spec of each result; None, or a shorter tuple, for the kernel's default.
    """

    kernel: str
    operands: tuple[Value | Constant | None, ...]
    parameters: tuple[tuple[str, NodeParameter], ...] = ()
    strategy: str = ""
    in_specs: tuple[NodeSpec | None, ...] = ()
    out_specs: tuple[NodeSpec | None, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A graph of kernel calls; equal to graphs of the same digest.

    Attributes:
        nodes: the calls; operands are results of earlier ones.
        results: the values that are returned.
    """

    nodes: tuple[Node, ...]
    results: tuple[Value, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<graph of {self.node_count} calls, SHA-256 {self.digest}>"

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of its nodes and results, hexadecimal; bodies take part by their digests.

        It differs for 1, 1.0 and True, and is the same in every process.
        """
        return hashlib.sha256(repr((self.nodes, self.results)).encode(errors="surrogatepass")).hexdigest()

    @cached_property
    def input_count(self) -> int:
        """The number of inputs, which is one more than the largest index of one."""
        values = (*(value for node in self.nodes for value in values_of(node)), *self.results)
        return 1 + max((value.number for value in values if value.node < 0), default=-1)

    @cached_property
    def bodies(self) -> tuple[Graph, ...]:
        """The graphs that its nodes run, one for every use."""
        return tuple(body for node in self.nodes for body in bodies_of(node))

    @cached_property
    def node_count(self) -> int:
        """The number of its nodes, and of those of its bodies."""
        return len(self.nodes) + sum(body.node_count for body in self.bodies)

    @cached_property
    def depth(self) -> int:
        """The number of graphs one in the other."""
        return 1 + max((body.depth for body in self.bodies), default=0)

    @cached_property
    def has_loops(self) -> bool:
        """True if there is a loop in it or in its bodies."""
        return any(map(is_loop, self.nodes)) or any(body.has_loops for body in self.bodies)


def values_of(node: Node) -> Iterator[Value]:
    """Yields the inputs of a graph and the results of its nodes that a node takes."""
    return (value for value in node.operands if isinstance(value, Value))


def bodies_of(node: Node) -> list[Graph]:
    """Returns the graphs that a node runs; of branches, the one for a false condition comes first."""
    return [value for _, value in node.parameters if isinstance(value, Graph)]


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


def parameters_of(values: Sequence[tuple[str, Any]]) -> tuple[tuple[str, NodeParameter], ...]:
    """Returns the parameters of a node, sorted, lists as tuples."""
    return tuple(sorted((name, tuple(value) if isinstance(value, list) else value) for name, value in values))
