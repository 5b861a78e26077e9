"""Changes of the meaning of graphs: of nodes, operands, parameters, specs and results, also of graphs in graphs."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernels.derivative_cases import CASES
from kernels.random_graphs import KERNELS

from shardcall_core.graphs.canonical import canonical
from shardcall_core.graphs.graph import BODIES, Graph, Node, Value, parameters_of

_INTEGERS = (0, 1, -1, 2, 3, 5, 7, 63, 64, 65, 1000, 2**20, 2**31, 2**62, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -0.0, 0.5, 1e308, 5e-324, float("nan"), float("inf"))
_TEXTS = (
    *("x", "auto", "float64", "int32", "float128", "axis", "ij,jk->ik", "constant"),
    *("grad", "vjp", "", "\0", "💥", "x" * 5000),
)
_LISTS = (
    *((), (0,), (1,), (-1,), (5,), (2**62,), tuple(range(64))),
    *((0, 0), (0, 1), (1, 0), (-1, -1), (0, -1), (7, 2**40)),
)
VALUES: tuple[Any, ...] = (*_INTEGERS, True, False, *_FLOATS, *_TEXTS, *_LISTS)
"""Values of parameters."""

_NAMES = ("", "Add", "ADD", "add ", "nope", "graph", "scan", "cond", "vmap", "call", "\0", "💥", "x" * 5000, "../x")
_STRATEGIES = ("auto", "gspmd", "halo", "exchange", "all_to_all", "composed", "gathered", "nope", "x" * 5000)
_SPECS = (
    *((), (("x",),), ((), ("x",)), (("a", "b"),), (("a",), ("b",))),
    *((("x",), ("x",)), (("nope",),), ((),) * 64, (("x" * 5000,),)),
)
_MAX_INPUTS = 1024
_CONTROL = {
    "graph": ("graph", "carried", "condition", "count", "transform", "wrt"),
    "scan": ("graph", "carried", "scanned", "length", "reverse"),
    "cond": ("then", "otherwise", "then_inputs", "otherwise_inputs"),
    "vmap": ("graph", "in_axes", "out_axes", "size"),
}
_INTEGER_NAMES = ("length", "size")

Change = Callable[[random.Random, Graph], Graph]


def changed(chance: random.Random, graph: Graph, change: Change) -> Graph:
    """Returns a graph after a change, often of a graph in it."""
    bodies = [
        (i, name, body)
        for i, node in enumerate(graph.nodes)
        for name, body in node.parameters
        if isinstance(body, Graph)
    ]
    if not bodies or chance.random() < 0.4:
        return change(chance, graph)
    i, name, body = chance.choice(bodies)
    inner, used = written(chance, changed(chance, body, change))
    graph = _with_parameters(graph, i, {name: inner})
    node = graph.nodes[i]
    if node.kernel == "cond" or not used or max(used) >= len(node.operands):
        return graph
    others = node.operands[max(used) + 1 :]  # first values and numbers of iterations among them
    return _with_node(graph, i, node._replace(operands=(*(node.operands[k] for k in used), *others)))


def written(chance: random.Random, graph: Graph) -> tuple[Graph, list[int]]:
    """Returns a graph, mostly in its canonical form if it has one, and the inputs that it uses."""
    if chance.random() < 0.05 or not is_ordered(graph):
        return graph, list(range(graph.input_count))
    return canonical(graph)


def is_ordered(graph: Graph) -> bool:
    """Returns True if no node takes a result of a later one, so that the graph has a canonical form."""
    count = len(graph.nodes)
    return all(value.node < count for value in graph.results) and all(
        value is None or value.node < i for i, node in enumerate(graph.nodes) for value in node.operands
    )


def _with_node(graph: Graph, index: int, node: Node) -> Graph:
    return replace(graph, nodes=(*graph.nodes[:index], node, *graph.nodes[index + 1 :]))


def _with_parameters(graph: Graph, index: int, values: dict[str, Any]) -> Graph:
    node = graph.nodes[index]
    return _with_node(
        graph, index, node._replace(parameters=parameters_of([*{**dict(node.parameters), **values}.items()]))
    )


def _of_a_node(change: Callable[[random.Random, Graph, int], Graph]) -> Change:
    """Returns the change of a node; a graph without nodes stays as it is."""
    return lambda chance, graph: change(chance, graph, chance.randrange(len(graph.nodes))) if graph.nodes else graph


def _value(chance: random.Random, graph: Graph, before: int) -> Value:
    """Draws a value before a node, seldom one that there is not."""
    if chance.random() < 0.1:
        node = chance.choice((before, before + 1, len(graph.nodes), 10**6))
        return chance.choice((Value(node, 0), Value(-1, _MAX_INPUTS - 1), Value(-1, _MAX_INPUTS), Value(0, 63)))
    if before == 0 or chance.random() < 0.4:
        return Value(-1, chance.randrange(max(1, graph.input_count)))
    return Value(chance.randrange(before), chance.choice((0, 0, 0, 0, 0, 1)))


def _parameter_value(chance: random.Random, kernel: str, name: str) -> Any:
    """Draws a value of a parameter, mostly one of its type."""
    defaults = [p.default for p in KERNELS[kernel].parameters if p.name == name] if kernel in KERNELS else []
    usual = [p[name] for _, p in CASES.get(kernel, ()) if name in p]
    if usual and chance.random() < 0.5:
        return chance.choice(usual)
    match [*usual, *defaults, 0 if name in _INTEGER_NAMES else ()][0]:
        case bool() if chance.random() < 0.8:
            return chance.random() < 0.5
        case int() if chance.random() < 0.8:
            return chance.choice(_INTEGERS)
        case tuple() if chance.random() < 0.8:
            return tuple(chance.choices(_INTEGERS[:6], k=chance.randrange(4)))
    return chance.choice((*VALUES, None))


@_of_a_node
def _operand(chance: random.Random, graph: Graph, i: int) -> Graph:
    operands = list(graph.nodes[i].operands)
    k = chance.randrange(len(operands) + 1)
    value = None if chance.random() < 0.1 else _value(chance, graph, i)
    match chance.randrange(5):
        case 0:
            operands.insert(k, value)
        case 1:
            del operands[k : k + 1]
        case 2:
            chance.shuffle(operands)
        case 3:
            operands += operands[-1:] * chance.choice((1, 60, 65))
        case _:
            operands[k : k + 1] = [value]
    return _with_node(graph, i, graph.nodes[i]._replace(operands=tuple(operands)))


@_of_a_node
def _kernel(chance: random.Random, graph: Graph, i: int) -> Graph:
    name = chance.choice(_NAMES) if chance.random() < 0.3 else chance.choice(sorted(KERNELS))
    return _with_node(graph, i, graph.nodes[i]._replace(kernel=name))


@_of_a_node
def _parameter(chance: random.Random, graph: Graph, i: int) -> Graph:
    node = graph.nodes[i]
    kernel = KERNELS.get(node.kernel)
    names = _CONTROL.get(node.kernel) or [p.name for p in (kernel.parameters if kernel else ())]
    if not names and chance.random() < 0.9:
        return _operand(chance, graph)
    name = chance.choice((*names, *names, "nope", "x" * 5000) if chance.random() < 0.1 or not names else names)
    values = dict(node.parameters)
    if name in values and chance.random() < 0.15:
        del values[name]
    elif type(values.get(name)) is tuple and chance.random() < 0.5:
        items = list(values[name])
        items[chance.randrange(len(items) + 1) :] = chance.choices(_INTEGERS[:8], k=chance.randrange(4))
        values[name] = tuple(items)
    else:
        values[name] = _parameter_value(chance, node.kernel, name)
    return _with_node(graph, i, node._replace(parameters=parameters_of(list(values.items()))))


@_of_a_node
def _layout(chance: random.Random, graph: Graph, i: int) -> Graph:
    node = graph.nodes[i]
    specs = tuple(chance.choices((None, *_SPECS), k=chance.choice((1, 1, 2, 3, 64))))
    kernel = KERNELS.get(node.kernel)
    supported = [strategy.name for strategy in kernel.strategies] if kernel else []
    strategy = chance.choice((*supported, *supported, *supported, *_STRATEGIES))
    return _with_node(
        graph, i, node._replace(**chance.choice(({"strategy": strategy}, {"in_specs": specs}, {"out_specs": specs})))
    )


def _results(chance: random.Random, graph: Graph) -> Graph:
    results = list(graph.results)
    match chance.randrange(4):
        case 0:
            results.append(_value(chance, graph, len(graph.nodes)))
        case 1:
            results = results[1:]
        case 2:
            results += results * chance.choice((1, 1, 1, 70))
        case _:
            results[chance.randrange(len(results) + 1) :] = [_value(chance, graph, len(graph.nodes))]
    return replace(graph, results=tuple(results))


def _added(chance: random.Random, graph: Graph) -> Graph:
    """Adds a call of some kernel, and returns its result as the first."""
    kernel = KERNELS[chance.choice(sorted(KERNELS))]
    count = chance.choice((1, 1, 2, 2, 3, 4))
    operands = tuple(_value(chance, graph, len(graph.nodes)) for _ in kernel.operand_infos(count))
    names = [p.name for p in kernel.parameters if chance.random() < 0.5]
    parameters = [(name, _parameter_value(chance, kernel.name, name)) for name in names]
    node = Node(kernel.name, operands[: chance.choice((count, 8))], parameters_of(parameters))
    return Graph((*graph.nodes, node), (Value(len(graph.nodes), 0), *graph.results[: _MAX_INPUTS - 1]))


def _nested(chance: random.Random, graph: Graph) -> Graph:
    """The graph in graphs, one in the other."""
    for _ in range(chance.choice((1, 1, 2, 3, 5, 12, 20))):
        count, results = graph.input_count, range(len(graph.results))
        kernel = chance.choice(("graph", "graph", "scan", "cond", "vmap"))
        every = tuple(range(count))
        parameters = {
            "graph": chance.choice(
                (
                    {"graph": graph},
                    {"graph": graph, "transform": "checkpoint"},
                    {"graph": graph, "carried": tuple(i if i < count else -1 for i in results), "count": 2},
                    {"graph": graph, "transform": "jvp", "wrt": (0,)},
                )
            ),
            "scan": {"graph": graph, "carried": (-1,) * len(results), "scanned": (), "length": 2},
            "cond": {"then": graph, "otherwise": graph, "then_inputs": every, "otherwise_inputs": every},
            "vmap": {"graph": graph, "in_axes": (-1,) * count, "out_axes": (0,) * len(results), "size": 2},
        }[kernel]
        inputs = (0, *every) if kernel == "cond" else every
        node = Node(kernel, tuple(Value(-1, i) for i in inputs), parameters_of(list(parameters.items())))
        graph = Graph((node,), tuple(Value(0, i) for i in results))
    return graph


@_of_a_node
def _repeated(chance: random.Random, graph: Graph, i: int) -> Graph:
    """Many calls of one kernel, each of the one before."""
    nodes, node = list(graph.nodes), graph.nodes[i]
    for _ in range(chance.choice((3, 20, 254, 300, 5000))):
        nodes.append(node._replace(operands=(Value(len(nodes) - 1, 0), *node.operands[1:])))
    return Graph(tuple(nodes), (Value(len(nodes) - 1, 0), *graph.results[: _MAX_INPUTS - 1]))


@_of_a_node
def _swapped(chance: random.Random, graph: Graph, i: int) -> Graph:
    """Two nodes exchanged, or one less."""
    nodes, k = list(graph.nodes), chance.randrange(len(graph.nodes))
    if chance.random() < 0.5:
        nodes[i], nodes[k] = nodes[k], nodes[i]
    else:
        del nodes[i]
    return replace(graph, nodes=tuple(nodes))


def _of_control(chance: random.Random, graph: Graph) -> Graph:
    """A parameter of a node that runs a graph, such as the graph itself."""
    controls = [k for k, node in enumerate(graph.nodes) if node.kernel in _CONTROL]
    if not controls:
        return _nested(chance, graph)
    i = chance.choice(controls)
    name = chance.choice(_CONTROL[graph.nodes[i].kernel])
    if name in BODIES[graph.nodes[i].kernel]:
        return _with_parameters(graph, i, {name: chance.choice((graph, *_TEXTS))})
    return _with_parameters(graph, i, {name: _parameter_value(chance, graph.nodes[i].kernel, name)})


CHANGES: tuple[Change, ...] = (
    *(_operand, _operand, _operand, _kernel, _parameter, _parameter, _parameter, _layout, _results),
    *(_added, _added, _added, _nested, _repeated, _swapped, _of_control, _of_control),
)
"""The changes, more often those of which most graphs are still read."""
