"""Graphs as messages of the contract, which are not trusted: limits are checked before anything is expanded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from shardcall.v1 import array_pb2, mesh_pb2, program_pb2
from shardcall_core.call_error import MAX_KERNEL_NAME, shorten
from shardcall_core.element_types import NAMED
from shardcall_core.graphs.canonical import canonical
from shardcall_core.graphs.graph import (
    BODIES,
    MAX_BYTES,
    MAX_CONSTANT_BYTES,
    MAX_DEPTH,
    MAX_ITEMS,
    MAX_NODES,
    MAX_VALUES,
    Constant,
    Graph,
    Node,
    NodeParameter,
    NodeSpec,
    Value,
)

_MAX_GRAPHS = 1024
_MAX_TEXT = 4096
_PREFIX = "ELEMENT_TYPE_"

_Item = TypeVar("_Item")


class MalformedProgramError(ValueError):
    """The refusal of a message that is no program in its canonical form.

    Attributes:
        field: the field of the message.

    Args:
        field: the field of the message.
        problem: the rest of the sentence that begins with the field.
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field = field


def to_message(graph: Graph) -> program_pb2.Program:
    """Returns the message of a graph; messages of equal graphs are equal."""
    message = program_pb2.Program()
    _add_graph(message, graph, {})
    return message


def from_message(message: program_pb2.Program) -> Graph:
    """Returns the graph of a message.

    Raises:
        MalformedProgramError: if the message is beyond the limits or not in its canonical form.
    """
    if (nbytes := message.ByteSize()) > MAX_BYTES:
        raise MalformedProgramError("graphs", f"has {nbytes:,} bytes; at most {MAX_BYTES:,} are allowed")
    count = sum(len(item.nodes) for item in _checked(message.graphs, "graphs", "graphs", _MAX_GRAPHS))
    _check_count(count, "graphs", "nodes", MAX_NODES)
    graphs: list[Graph] = []
    for i, item in enumerate(message.graphs):
        field = f"graphs[{i}]"
        graph = _graph(item, graphs, field)
        _check_count(graph.node_count, field, "nodes, those of bodies included,", MAX_NODES)
        _check_count(graph.depth, field, "graphs one in the other", MAX_DEPTH)
        form, inputs = canonical(graph)
        if form != graph or inputs != sorted(inputs):
            raise MalformedProgramError(
                field,
                "is not in its canonical form: number nodes and inputs as a walk from the results does, and leave out "
                "nodes that are not needed, or equal to others",
            )
        graphs.append(graph)
    if not graphs:
        raise MalformedProgramError("graphs", "is empty; the last graph is the one that runs")
    _check_table(message, graphs)
    return graphs[-1]


def _check_table(message: program_pb2.Program, graphs: Sequence[Graph]) -> None:
    written = to_message(graphs[-1])
    if written.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True):
        return
    pairs = enumerate(zip(written.graphs, message.graphs, strict=False))
    first = next((i for i, (ours, theirs) in pairs if ours != theirs), min(len(written.graphs), len(graphs) - 1))
    raise MalformedProgramError(
        f"graphs[{first}]",
        "is not in its canonical form: write every body once, before the graph that runs it, in the order of a walk "
        "from the last graph, and no field that the contract does not have",
    )


def _add_graph(message: program_pb2.Program, graph: Graph, indices: dict[Graph, int]) -> None:
    """Adds a graph that the message does not have, after its bodies."""
    for body in graph.bodies:
        if body not in indices:
            _add_graph(message, body, indices)
    added = message.graphs.add()
    for node in graph.nodes:
        call = added.nodes.add(kernel=node.kernel, strategy=node.strategy)
        for operand in node.operands:
            _set_value(call.operands.add(), operand)
        for name, value in node.parameters:
            _set_parameter(call.parameters.add(name=name), value, indices)
        for specs, messages in ((node.in_specs, call.in_specs), (node.out_specs, call.out_specs)):
            for spec in specs:
                _set_spec(messages.add(), spec)
    for value in graph.results:
        _set_value(added.results.add(), value)
    indices[graph] = len(message.graphs) - 1


def _set_value(message: program_pb2.ProgramValue, value: Value | Constant | None) -> None:
    if value is None:
        return
    if isinstance(value, Constant):
        constant = message.constant
        constant.type.element_type = array_pb2.ElementType.Value(f"{_PREFIX}{value.dtype.upper()}")
        constant.type.shape.extend(value.shape)
        constant.data = value.data
        return
    if value.node < 0:
        message.input = value.number
    else:
        message.node, message.result = value


def _set_parameter(message: program_pb2.ProgramParameter, value: NodeParameter, indices: dict[Graph, int]) -> None:
    match value:
        case bool():
            message.bool_value = value
        case int():
            message.int_value = value
        case float():
            message.float_value = value
        case str():
            message.string_value = value
        case tuple():
            message.int_list.SetInParent()
            message.int_list.values.extend(value)
        case Graph():
            message.body = indices[value]


def _set_spec(message: mesh_pb2.OptionalPartitionSpec, spec: NodeSpec | None) -> None:
    if spec is None:
        return
    message.spec.SetInParent()
    for names in spec:
        message.spec.entries.add(axis_names=names)


def _checked(items: Sequence[_Item], field: str, what: str, max_count: int) -> Sequence[_Item]:
    _check_count(len(items), field, what, max_count)
    return items


def _check_count(count: int, field: str, what: str, max_count: int) -> None:
    if count > max_count:
        raise MalformedProgramError(field, f"has {count:,} {what}; at most {max_count:,} are allowed")


def _graph(message: program_pb2.ProgramGraph, graphs: Sequence[Graph], field: str) -> Graph:
    """Returns a graph.

    Args:
        message: its message.
        graphs: the graphs before it, which it may run.
        field: the field of the message.
    """
    nodes = tuple(_node(item, i, graphs, f"{field}.nodes[{i}]") for i, item in enumerate(message.nodes))
    items = _checked(message.results, f"{field}.results", "results", MAX_VALUES)
    results = []
    for i, item in enumerate(items):
        value = _value(item, len(nodes), f"{field}.results[{i}]")
        if not isinstance(value, Value):
            problem = "has no source" if value is None else "is a constant"
            raise MalformedProgramError(f"{field}.results[{i}]", f"{problem}; set input or node")
        results.append(value)
    if not results:
        raise MalformedProgramError(f"{field}.results", "is empty; return at least one value")
    return Graph(nodes, tuple(results))


def _node(message: program_pb2.ProgramNode, index: int, graphs: Sequence[Graph], field: str) -> Node:
    if not message.kernel:
        raise MalformedProgramError(f"{field}.kernel", "is empty; give the name of a kernel")
    for name in ("kernel", "strategy"):
        _check_count(len(getattr(message, name)), f"{field}.{name}", "characters", MAX_KERNEL_NAME)
    operands = _checked(message.operands, f"{field}.operands", "operands", MAX_ITEMS)
    parameters = []
    for i, item in enumerate(_checked(message.parameters, f"{field}.parameters", "parameters", MAX_ITEMS)):
        parameters.append((item.name, _parameter(item, graphs, f"{field}.parameters[{i}]")))
        if i and parameters[i - 1][0] >= item.name:
            raise MalformedProgramError(
                f"{field}.parameters[{i}].name",
                f"is {shorten(item.name)!r} after {shorten(parameters[i - 1][0])!r}; sort parameters by their names, "
                "and give none twice",
            )
    values = tuple([_value(item, index, f"{field}.operands[{i}]") for i, item in enumerate(operands)])
    if message.kernel in BODIES:
        for i, value in enumerate(values):
            if isinstance(value, Constant):
                raise MalformedProgramError(
                    f"{field}.operands[{i}].constant", f"is set for {message.kernel}, which runs graphs; give an input"
                )
    return Node(
        message.kernel,
        values,
        tuple(parameters),
        message.strategy,
        _specs(message.in_specs, f"{field}.in_specs"),
        _specs(message.out_specs, f"{field}.out_specs"),
    )


def _value(message: program_pb2.ProgramValue, before: int, field: str) -> Value | Constant | None:
    """Returns what a node takes, or a graph returns, where there are nodes before."""
    source, result = message.WhichOneof("source"), message.result
    if source == "node":
        node: int = message.node
        if node >= before:
            raise MalformedProgramError(field, f"refers to node {node}, where there are {before} nodes before")
        if result >= MAX_ITEMS:
            raise MalformedProgramError(field, f"refers to result {result}; a node has at most {MAX_ITEMS}")
        return Value(node, result)
    if result:
        raise MalformedProgramError(f"{field}.result", f"is {result} without a node; leave it out")
    if source is None:
        return None
    if source == "constant":
        return _constant(message.constant, f"{field}.constant")
    if message.input >= MAX_VALUES:
        raise MalformedProgramError(field, f"refers to input {message.input}; a graph has at most {MAX_VALUES:,}")
    return Value(-1, message.input)


def _constant(message: program_pb2.ProgramConstant, field: str) -> Constant:
    names = array_pb2.ElementType.DESCRIPTOR.values_by_number
    code = names.get(message.type.element_type)
    dtype = None if code is None else NAMED.get(code.name.removeprefix(_PREFIX).lower())
    if dtype is None:
        raise MalformedProgramError(f"{field}.type.element_type", "is unknown; give an element type of the contract")
    _check_count(len(message.data), f"{field}.data", "bytes", MAX_CONSTANT_BYTES)
    shape = tuple(_checked(message.type.shape, f"{field}.type.shape", "axes", MAX_ITEMS))
    if any(not 0 <= size <= MAX_CONSTANT_BYTES for size in shape):
        raise MalformedProgramError(
            f"{field}.type.shape", f"is {list(shape)}; give sizes from 0 to {MAX_CONSTANT_BYTES}"
        )
    if math.prod(shape) * dtype.itemsize != len(message.data):
        raise MalformedProgramError(
            f"{field}.data",
            f"has {len(message.data)} bytes, and {dtype.name} {list(shape)} has {math.prod(shape) * dtype.itemsize}",
        )
    return Constant(dtype.name, shape, message.data)


def _parameter(message: program_pb2.ProgramParameter, graphs: Sequence[Graph], field: str) -> NodeParameter:
    _check_count(len(message.name), f"{field}.name", "characters", MAX_KERNEL_NAME)
    match message.WhichOneof("kind"):
        case None:
            return None
        case "int_list":
            return tuple(_checked(message.int_list.values, f"{field}.int_list", "integers", MAX_ITEMS))
        case "string_value":
            _check_count(len(message.string_value), f"{field}.string_value", "characters", _MAX_TEXT)
            return message.string_value
        case "body":
            if message.body >= len(graphs):
                raise MalformedProgramError(
                    f"{field}.body", f"is {message.body}, where there are {len(graphs)} graphs before"
                )
            return graphs[message.body]
        case name:
            value: bool | int | float = getattr(message, name)
            return value


def _specs(messages: Sequence[mesh_pb2.OptionalPartitionSpec], field: str) -> tuple[NodeSpec | None, ...]:
    if not messages:
        return ()
    specs = []
    for i, message in enumerate(_checked(messages, field, "specs", MAX_ITEMS)):
        entries = _checked(message.spec.entries, f"{field}[{i}].spec", "entries", MAX_ITEMS)
        names = [
            _checked(entry.axis_names, f"{field}[{i}].spec", "mesh axes in an entry", MAX_ITEMS) for entry in entries
        ]
        specs.append(tuple(map(tuple, names)) if message.HasField("spec") else None)
    return tuple(specs)
