"""Messages of programs: equal programs are equal messages, and other messages are refused by field."""

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from google.protobuf.message import DecodeError
from kernels.graphs import GraphWriter
from rows import rows

from shardcall.v1.program_pb2 import Program
from shardcall_core.graphs.canonical import CanonicalForm, canonical
from shardcall_core.graphs.graph import MAX_BYTES, MAX_DEPTH, MAX_NODES, Constant, Graph, Node, Value
from shardcall_core.graphs.messages import MalformedProgramError, from_message, to_message

X = Value(-1, 0)


def negative(*, times: int = 1) -> Graph:
    return Graph(tuple(Node("negative", (Value(i - 1, 0) if i else X,)) for i in range(times)), (Value(times - 1, 0),))


def looped(body: Graph, count: int = 2) -> Graph:
    node = Node("graph", (X,), (("carried", (0,)), ("count", count), ("graph", body)))
    return Graph((node,), (Value(0, 0),))


def refusal(message: Program) -> MalformedProgramError:
    with pytest.raises(MalformedProgramError) as raised:
        from_message(message)
    return raised.value


EVERYTHING = Graph(
    (
        Node(
            "clip", (X, None, Value(-1, 1)), strategy="gspmd", in_specs=(None, None, ((),)), out_specs=((("x",), ()),)
        ),
        Node("any_kernel", (), (("a", True), ("b", -(2**63)), ("c", 0.1), ("d", "é"), ("e", ()), ("f", None))),
        looped(negative()).nodes[0]._replace(operands=(Value(1, 2),)),
    ),
    (Value(2, 0), X, Value(0, 0), Value(2, 0)),
)


def test_a_program_survives_its_message() -> None:
    graph, _ = canonical(EVERYTHING)
    again = from_message(Program.FromString(to_message(graph).SerializeToString()))
    assert (again.nodes, again.results) == (graph.nodes, graph.results)
    assert again == graph
    assert hash(again) == hash(graph)


def test_equal_computations_are_equal_messages() -> None:
    one, other = GraphWriter(), GraphWriter()
    graph = one.graph(one("add", one("negative", one.x(0)), one("sin", one.x(1))))
    other("cos", other.x(5))
    sin = other("sin", other.x(3))
    first, again = other("negative", other.x(4)), other("negative", other.x(4))
    for value in (first, again):
        form, inputs = other.call([other("add", value, sin)])
        assert inputs == [4, 3]
        assert form == graph
        assert to_message(form) == to_message(graph)
        assert form.digest == graph.digest == from_message(to_message(form)).digest


def test_unset_specs_at_the_end_are_left_out() -> None:
    specs = ((("x",),), None, None)
    node = Node("add", (X, Value(-1, 1)), in_specs=specs, out_specs=(None,))
    (form,) = canonical(Graph((node,), (Value(0, 0),)))[0].nodes
    assert (form.in_specs, form.out_specs) == (specs[:1], ())


def test_digests_differ_for_values_of_other_types() -> None:
    values = (1, True, 1.0, "1", (1,), None, 0.0, -0.0, 0, False, (), "", negative(), negative(times=2))
    graphs = [Graph((Node("add", (X,), (("a", value),)),), (Value(0, 0),)) for value in values]
    assert len(set(graphs)) == len({to_message(graph).SerializeToString() for graph in graphs}) == len(values)


def test_a_body_of_many_nodes_is_sent_once() -> None:
    write = GraphWriter()
    value = write.x(0)
    for count in range(1, 50):
        value = write("graph", value, graph=looped(negative()), carried=(0,), count=count)
    message = to_message(graph := write.graph(value))
    assert [len(item.nodes) for item in message.graphs] == [1, 1, 49]
    assert (graph.node_count, graph.depth) == (49 * 3, 3)
    assert from_message(message) == graph


def constant(content: str, kernel: str = "add") -> str:
    """The text of a program whose node takes an input and a constant."""
    operands = f"operands {{ input: 0 }} operands {{ constant {{ {content} }} }}"
    return f'graphs {{ nodes {{ kernel: "{kernel}" {operands} }} results {{ node: 0 }} }}'


F64 = "element_type: ELEMENT_TYPE_FLOAT64"


def program(*nodes: str, results: str = "results { node: 0 }") -> str:
    """The text of a program of nodes."""
    return f"graphs {{ {' '.join(f'nodes {{ {node} }}' for node in nodes)} {results} }}"


F, INPUT, LAST = 'kernel: "f"', "results { input: 0 }", "results { node: 1 }"
FORM = r"graphs\[0\] is not in its canonical form: "
MALFORMED = (
    ("", "graphs is empty"),
    ("graphs {}", r"graphs\[0\].results is empty"),
    (program(results="results {}"), r"graphs\[0\].results\[0\] has no source"),
    (program(results="results { input: 1024 }"), r"graphs\[0\].results\[0\] refers to input 1024"),
    (program(results="results { input: 1 }"), "canonical form: number"),
    (program(results="results { input: 0 result: 1 }"), r"results\[0\].result is 1"),
    (program(), "refers to node 0, where there are 0"),
    (program(f"{F} operands {{ node: 0 }}"), r"operands\[0\] refers to node 0"),
    (program("operands { input: 0 }"), r"nodes\[0\].kernel is empty"),
    (program(F, results="results { node: 0 result: 64 }"), "refers to result 64"),
    (program(f"{F} parameters {{ body: 0 }}"), r"parameters\[0\].body is 0"),
    (program(f'{F} parameters {{ name: "b" }} parameters {{ name: "a" }}'), r"parameters\[1\].name is 'a' after 'b'"),
    (program(f'{F} parameters {{ name: "a" }} parameters {{ name: "a" }}'), r"parameters\[1\].name is 'a' after 'a'"),
    (program(f"{F} in_specs {{}}"), "canonical form"),
    (program(f"{F} operands {{ input: 0 }}", 'kernel: "g"', results=LAST), FORM + "n"),
    (program(F, F, results=f"results {{ node: 0 }} {LAST}"), FORM + "number"),
    (program(results=INPUT) + program(results=INPUT), "every body once"),
    (program(results=INPUT) + program(F), "every body once"),
)


@rows(("text", "message"), MALFORMED)
def test_malformed_messages_are_refused_by_field(text: str, message: str) -> None:
    error = refusal(text_format.Parse(text, Program()))
    assert re.search(message, str(error)), str(error)
    assert str(error).startswith(error.field)


@rows(
    ("content", "message"),
    (
        (r'type { } data: ""', r"nodes\[0\].operands\[1\].constant.type.element_type is unknown"),
        (r"type { element_type: 99 }", r"constant.type.element_type is unknown"),
        (f"type {{ {F64} shape: 2 }} data: '12345678'", r"constant.data has 8 bytes, and float64 \[2\] has 16"),
        (f"type {{ {F64} shape: -1 }} data: ''", r"constant.type.shape is \[-1\]; give sizes from 0 to 512"),
        (f"type {{ {F64} shape: 4611686018427387904 }} data: ''", r"shape is \[4611686018427387904\]; give sizes"),
        (f"type {{ {F64} shape: 65 }} data: '{'x' * 520}'", r"constant.data has 520 bytes; at most 512 are allowed"),
        (f"type {{ {F64} {'shape: 1 ' * 65} }} data: '12345678'", r"shape has 65 axes; at most 64 are allowed"),
    ),
)
def test_malformed_constants_are_refused_by_field(content: str, message: str) -> None:
    assert re.search(message, str(refusal(text_format.Parse(constant(content), Program()))))


def test_constants_are_operands_of_nodes_that_run_no_graph() -> None:
    content = f"type {{ {F64} }} data: '12345678'"
    error = refusal(text_format.Parse(constant(content, "scan"), Program()))
    assert str(error).startswith("graphs[0].nodes[0].operands[1].constant is set for scan, which runs graphs")
    text = f"graphs {{ results {{ constant {{ {content} }} }} }}"
    assert "graphs[0].results[0] is a constant; set input or node" in str(refusal(text_format.Parse(text, Program())))


@rows("array", [np.arange(3), np.float64(-0.0), np.array([], "f4"), np.ones((2, 1), bool), np.array([1j], ">c16")])
def test_constants_survive_their_message(array: np.ndarray) -> None:
    graph = Graph((Node("add", (X, Constant.of(np.asarray(array)))),), (Value(0, 0),))
    again = from_message(Program.FromString(to_message(graph).SerializeToString()))
    assert again == graph
    (read,) = [operand for operand in again.nodes[0].operands if isinstance(operand, Constant)]
    assert read.array.tobytes() == np.asarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    assert read.array.shape == array.shape


def test_only_bounds_of_slices_are_constants_of_exact_programs() -> None:
    write = GraphWriter()
    part = write("getitem", write.x(0), write.x(1), sizes=(2,), steps=(1,))
    results = (write("add", part, write.x(2)), write.x(2))
    graph = Graph(tuple(write.nodes), results)
    constants = {1: Constant.of(np.array([3])), 2: Constant.of(np.float64(2))}
    forms = [CanonicalForm(graph, constants, exact=exact) for exact in (True, False)]
    assert [list(form.inputs) for form in forms] == [[0, 2], [0, 2]]  # what is returned is an input, too
    assert [form.graph.nodes[0].operands[1] for form in forms] == [constants[1]] * 2
    assert [form.graph.nodes[1].operands[1] for form in forms] == [Value(-1, 1), constants[2]]


def test_bodies_in_another_order_are_refused() -> None:
    write = GraphWriter()
    first = write("graph", write.x(0), graph=negative(), carried=(0,), count=2)
    message = to_message(write.graph(write("graph", first, graph=negative(times=2), carried=(0,), count=2)))
    message.graphs[0].CopyFrom(to_message(negative(times=2)).graphs[0])
    message.graphs[1].CopyFrom(to_message(negative()).graphs[0])
    for i in (0, 1):
        message.graphs[2].nodes[i].parameters[2].body = 1 - i
    assert "every body once" in str(refusal(message))


def test_unknown_fields_are_refused() -> None:
    data = to_message(negative()).SerializeToString() + b"\x10\x01"
    assert "no field that the contract does not have" in str(refusal(Program.FromString(data)))


def changed(change: Callable[[Any, Any], object]) -> Program:
    """Returns the message of a program after a change of its graph and its node."""
    message = to_message(negative())
    change(message.graphs[0], message.graphs[0].nodes[0])
    return message


def doubled(times: int) -> Graph:
    """A graph of few nodes whose bodies, one in the other, run 2 to the power of ``times``."""
    graph = negative()
    for _ in range(times):
        loops = [looped(graph, count).nodes[0] for count in (2, 3)]
        graph = Graph((loops[0], loops[1]._replace(operands=(Value(0, 0),))), (Value(1, 0),))
    return graph


LIMITS = (
    (changed(lambda graph, node: graph.nodes.extend([node] * MAX_NODES)), "4,097 nodes"),
    (changed(lambda graph, node: node.operands.extend([graph.results[0]] * 64)), "65 operands"),
    (changed(lambda graph, node: graph.results.extend([graph.results[0]] * 1024)), "1,025 results"),
    (changed(lambda graph, node: [node.parameters.add() for _ in range(65)]), "65 parameters"),
    (changed(lambda graph, node: [node.out_specs.add() for _ in range(65)]), "65 specs"),
    (Program(graphs=to_message(negative()).graphs[:] * 1025), "1,025 graphs"),
    (changed(lambda _, node: setattr(node, "kernel", "x" * 1025)), "kernel has 1,025 characters"),
    (changed(lambda _, node: node.parameters.add(string_value="x" * 4097)), "string_value has 4,097 characters"),
    (changed(lambda _, node: node.parameters.add().int_list.values.extend([0] * 65)), "int_list has 65 integers"),
    (changed(lambda _, node: setattr(node, "kernel", "x" * MAX_BYTES)), "bytes; at most 1,048,576"),
    (to_message(doubled(12)), "nodes, those of bodies included,"),
)


@rows(("message", "expected"), LIMITS)
def test_limits_are_checked_before_anything_is_expanded(message: Program, expected: str) -> None:
    assert expected in str(refusal(message))


def test_depth_is_limited() -> None:
    graph = negative()
    for _ in range(MAX_DEPTH - 1):
        graph = looped(graph)
    assert from_message(to_message(graph)) == graph
    assert "17 graphs one in the other" in str(refusal(to_message(looped(graph))))
    for _ in range(150):  # deeper than messages in messages may be
        graph = looped(graph)
        assert graph.digest
    assert "one in the other" in str(refusal(Program.FromString(to_message(graph).SerializeToString())))


def test_the_largest_program_has_a_message() -> None:
    graph = negative(times=MAX_NODES)
    message = to_message(graph)
    assert message.ByteSize() < MAX_BYTES // 8
    assert from_message(message) == graph


@pytest.mark.parametrize("seed", range(5))
def test_mutated_messages_are_refused_or_equal_their_graphs(seed: int) -> None:
    chance, data = random.Random(seed), to_message(canonical(EVERYTHING)[0]).SerializeToString()
    refused = 0
    for _ in range(500):
        changed = bytearray(data)
        at = chance.randrange(len(changed))
        changed[at : at + chance.choice((0, 1, 2))] = chance.randbytes(chance.choice((0, 1, 2)))
        try:
            message = Program.FromString(bytes(changed))
            graph = from_message(message)
        except (DecodeError, MalformedProgramError):
            refused += 1
        else:
            assert to_message(graph).SerializeToString() == message.SerializeToString()
    assert refused > 100
