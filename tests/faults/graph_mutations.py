"""Valid calls of the kernel ``graph``, and changes of them at random: of bytes, fields, meaning and operands.

The same seed and number make the same change.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
from end_to_end.messages import mesh, spec
from faults.bad_input_rows import call, inline_operand
from faults.graph_changes import CHANGES, VALUES, changed, written
from faults.mutations import Mutations, ValidRequest
from google.protobuf.message import DecodeError
from kernels.derivative_cases import CASES
from kernels.graphs import GraphWriter, heat_step
from kernels.random_graphs import RandomGraph

from shardcall.v1 import kernel_service_pb2, program_pb2
from shardcall_core.element_types import is_inexact
from shardcall_core.graphs.graph import Graph, Value
from shardcall_core.graphs.messages import to_message
from shardcall_core.types.element_types import to_element_type

_MAX_RESULTS = 4
_MESHES: tuple[dict[str, int], ...] = ({"x": 8}, {"a": 4, "b": 2}, {"x": 3}, {"x": 1})
_U = np.arange(12.0).reshape(4, 3)
_ONE = np.float64(1)


@dataclass(frozen=True)
class GraphRequest:
    """A call of the kernel ``graph``.

    Attributes:
        graph: the graph; its message may be another one.
        operands: the operands.
        parameters: the other parameters.
        mesh: the axes of the mesh.
        in_specs: the specs of the operands; None for the default.
        message: the bytes in place of the graph's message, if they were changed.
    """

    graph: Graph
    operands: tuple[np.ndarray, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    mesh: dict[str, int] = field(default_factory=lambda: {"x": 1})
    in_specs: tuple[tuple[str | None, ...] | None, ...] = ()
    message: bytes = b""

    def program(self) -> program_pb2.Program | str:
        """The parameter; text if the bytes are no message."""
        if not self.message:
            return to_message(self.graph)
        try:
            return program_pb2.Program.FromString(self.message)
        except DecodeError:
            return repr(self.message)

    def execution(self) -> kernel_service_pb2.ExecuteRequest:
        """The request that runs it."""
        asked = call(
            "graph",
            self.parameters,
            mesh=mesh(**self.mesh),
            in_specs=[spec(*entries) if entries is not None else {} for entries in self.in_specs],
        )
        if isinstance(program := self.program(), str):
            asked.parameters["graph"].string_value = program
        else:
            asked.parameters["graph"].program.CopyFrom(program)
        operands = [
            inline_operand(x.shape, np.ascontiguousarray(x).tobytes(), to_element_type(x.dtype)) for x in self.operands
        ]
        return kernel_service_pb2.ExecuteRequest(call=asked, operands=operands)


def valid_call(chance: random.Random) -> GraphRequest:
    """Draws a call that the server would serve."""
    return chance.choice(_GENERATORS)(chance)


def _drawn(chance: random.Random) -> GraphRequest:
    """A random graph of several nodes."""
    drawn = RandomGraph(chance.random(), max_nodes=chance.choice((3, 8)))
    computed = [value for value in drawn.arrays if value.node >= 0] or [drawn.write.x(0)]
    graph, used = drawn.write.call(computed[-_MAX_RESULTS:])
    operands, specs = [drawn.inputs[i] for i in used], [drawn.in_specs[i] for i in used]
    return GraphRequest(graph, tuple(operands), {}, drawn.mesh, tuple(specs))


def _differentiated(chance: random.Random) -> GraphRequest:
    """A transformation of a random graph; as a node of another graph, or as the call itself."""
    drawn = RandomGraph(chance.random(), is_smooth=True, max_nodes=4)
    last = list(drawn.arrays)[-1]
    total = drawn.write("sum", last)
    graph, used = drawn.write.call([total])
    inputs = [drawn.inputs[i] for i in used]
    transform = chance.choice(("value_and_grad", "jvp", "vjp", "checkpoint"))
    wrt = [i for i, x in enumerate(inputs) if is_inexact(x.dtype)][: 0 if transform == "checkpoint" else 2]
    duals = {"jvp": [inputs[i] for i in wrt], "vjp": [_ONE]}.get(transform, [])
    if not wrt and transform != "checkpoint":
        return _drawn(chance)
    how = {"transform": transform, "wrt": tuple(wrt)}
    operands = (*inputs, *duals)
    if chance.random() < 0.5:
        specs = (*(drawn.in_specs[i] for i in used), *(drawn.spec(x.ndim) for x in duals))
        return GraphRequest(graph, operands, how, drawn.mesh, specs)
    return _of_node("graph", operands, {"graph": graph, **how}, chance)


def _of_one_kernel(chance: random.Random) -> GraphRequest:
    """A call of one kernel with arguments of every kind."""
    name = chance.choice(sorted(CASES))
    operands, parameters = chance.choice(CASES[name])
    write, numbers = GraphWriter(), iter(range(len(operands)))
    present = tuple(np.asarray(x) for x in operands if x is not None)
    node = write(name, *(None if x is None else write.x(next(numbers)) for x in operands), **parameters)
    return GraphRequest(write.graph(node), present, {}, chance.choice(_MESHES))


def _outermost_loop(chance: random.Random) -> GraphRequest:
    """A loop whose number of iterations is an operand; it runs in slices."""
    write = GraphWriter()
    operands = (_U, np.float64(0.1), np.float64(4), np.int64(3))
    return GraphRequest(write.graph(heat_step(write)), operands, {"carried": (0,)}, chance.choice(_MESHES))


def _loop(chance: random.Random) -> GraphRequest:
    if chance.random() < 0.5:
        return _of_node("graph", (_U, _ONE), {"graph": _doubled(), "carried": (0,), "count": 3}, chance)
    body = GraphWriter()
    total = body("add", body.x(0), body.x(0))
    how = {"graph": body.graph(total, body("less", body("max", total), body.x(1))), "carried": (0, 2), "condition": 1}
    return _of_node("graph", (_U, np.float64(100), np.bool_(True), np.int64(9)), how, chance, results=2)


def _scan(chance: random.Random) -> GraphRequest:
    body = GraphWriter()
    total = body("add", body.x(0), body.x(1))
    graph = body.graph(total, body("multiply", total, body.x(2)))
    how = {"graph": graph, "carried": (0, -1), "scanned": (1,), "length": 4, "reverse": chance.random() < 0.5}
    return _of_node("scan", (_U[0], _U, _ONE), how, chance, results=2)


def _cond(chance: random.Random) -> GraphRequest:
    other = GraphWriter()
    how = {"then": _doubled(), "otherwise": other.graph(other("negative", other.x(0)))}
    return _of_node(
        "cond", (np.bool_(True), _U, _ONE), {**how, "then_inputs": (0, 1), "otherwise_inputs": (0,)}, chance
    )


def _vmap(chance: random.Random) -> GraphRequest:
    inner = chance.choice((_loop, _scan, _cond, _of_one_kernel))(chance)
    stacked, count = tuple(np.stack([x, x]) for x in inner.operands), len(inner.graph.results)
    how = {"graph": inner.graph, "in_axes": (0,) * len(stacked), "out_axes": (0,) * count, "size": 2}
    return _of_node("vmap", stacked, how, chance, results=count)


def _checkpointed(chance: random.Random) -> GraphRequest:
    inner = chance.choice((_loop, _scan, _cond, _vmap))(chance)
    return _of_node("graph", inner.operands, {"graph": inner.graph, "transform": "checkpoint"}, chance)


def _doubled() -> Graph:
    write = GraphWriter()
    return write.graph(write("add", write("add", write.x(0), write.x(0)), write.x(1)))


def _of_node(
    kernel: str, operands: Sequence[Any], parameters: dict[str, Any], chance: random.Random, results: int = 1
) -> GraphRequest:
    """A graph of one node that runs graphs."""
    write = GraphWriter()
    node = write(kernel, *map(write.x, range(len(operands))), **parameters)
    values = [Value(node.node, i) for i in range(results)]
    return GraphRequest(write.graph(*values), tuple(map(np.asarray, operands)), {}, chance.choice(_MESHES))


_GENERATORS: tuple[Callable[[random.Random], GraphRequest], ...] = (
    *(_drawn, _drawn, _differentiated, _of_one_kernel, _of_one_kernel, _outermost_loop),
    *(_loop, _scan, _cond, _vmap, _checkpointed),
)


_TYPES = ("bool", "int8", "int64", "uint8", "float16", "bfloat16", "float32", "float64", "complex64", "int4")
_SHAPES = ((), (0,), (1,), (4, 3), (3, 4), (13,), (0, 3), (2, 2, 2), (1,) * 9, (4097,))


def mutated_call(seed: str, number: int) -> GraphRequest:
    """Returns a changed call.

    Args:
        seed: the seed of the changes.
        number: the number of the change.
    """
    chance = random.Random(f"{seed}:{number}")
    call = valid_call(chance)
    for _ in range(chance.choice((1, 1, 1, 1, 2))):
        call = chance.choice(_MUTATIONS)(chance, call)
    return call


def _of_bytes(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes bytes."""
    graph = to_message(call.graph)
    data = call.message or graph.SerializeToString(deterministic=True)
    return replace(call, message=Mutations([ValidRequest((graph,))], "").tear(chance, data))


def _of_fields(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes fields of the message."""
    message = to_message(call.graph)
    mutations = Mutations([ValidRequest((message,))], "")
    for _ in range(chance.choice((1, 1, 2))):
        mutations.change(chance, message)
    return replace(call, message=message.SerializeToString(deterministic=True))


def _of_meaning(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes nodes, operands, parameters, specs or results, of the graph or of one in it."""
    graph = call.graph
    for _ in range(chance.choice((1, 1, 2, 3))):
        graph = changed(chance, graph, chance.choice(CHANGES))
    graph, used = written(chance, graph)
    call = replace(call, graph=graph, message=b"")
    if not used or max(used) >= len(call.operands):
        return call
    others = call.operands[max(used) + 1 :]  # first values, tangents and numbers of iterations
    return replace(call, operands=(*(call.operands[i] for i in used), *others), in_specs=())


def _of_parameters(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes the other parameters of the call."""
    name = chance.choice(("carried", "condition", "count", "transform", "wrt"))
    return replace(call, parameters={**call.parameters, name: chance.choice(VALUES)})


def _of_operands(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes the operands, the mesh or the specs."""
    operands = list(call.operands)
    i = chance.randrange(len(operands) + 1)
    dtype = np.dtype(getattr(ml_dtypes, (name := chance.choice(_TYPES)), name))
    match chance.randrange(6):
        case 0 if i < len(operands):
            del operands[i]
        case 1:
            operands.insert(i, np.ones(chance.choice(_SHAPES), dtype))
        case 2 if i < len(operands):
            operands[i] = np.ones(operands[i].shape, dtype)
        case 3 if i < len(operands):
            operands[i] = np.ones(chance.choice(_SHAPES), operands[i].dtype)
        case 4:
            specs = chance.choice(((None,), (("x",),), (("x", "x"),), (("nope",),), ((None, "x"),), (("x",),) * 65))
            return replace(call, in_specs=specs)
        case _:
            return replace(call, mesh=chance.choice(({"x": 2}, {"x": 2, "y": 2}, {"b": 8}, {"x": 5})))
    return replace(call, operands=tuple(operands))


_Mutation = Callable[[random.Random, GraphRequest], GraphRequest]
_MUTATIONS: tuple[_Mutation, ...] = (*(_of_bytes, _of_fields, _of_parameters, _of_operands), *(_of_meaning,) * 12)
