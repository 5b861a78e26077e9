"""Calls of the kernel ``graph`` changed at random: the bytes, the fields, the meaning, and the operands.

The same seed and number make the same change.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np
from faults.graph_calls import GraphRequest, valid_call
from faults.graph_changes import CHANGES, VALUES, changed, names_of_control, written
from faults.mutations import Mutations, ValidRequest

from shardcall_core.graphs.messages import to_message

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
    name = chance.choice(names_of_control("graph"))
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
