"""Calls of the kernel ``graph`` changed at random: the bytes, the fields, the meaning, and the operands.

The same seed and number make the same change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from faults.graph_calls import GraphRequest, valid_call
from faults.graph_changes import CHANGES, VALUES, changed, names_of_control, written
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from shardcall.v1 import program_pb2
from shardcall_core.graphs.messages import to_message

_SCALARS: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2, 63, 64, 255, 1023, 1024, 2**31, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -1, 64, 2**31, 2**63 - 1, -(2**63)),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -0.0, 1.5, 1e308, float("nan"), float("inf")),
    FieldDescriptor.CPPTYPE_BOOL: (True, False),
    FieldDescriptor.CPPTYPE_STRING: ("", "add", "graph", "axis", "\0", "💥", "x" * 5000, "x" * 2000),
}
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
    data = bytearray(call.message or to_message(call.graph).SerializeToString(deterministic=True))
    begin = chance.randrange(len(data) + 1)
    end = min(len(data), begin + chance.choice((0, 1, 1, 2, 9, 99)))
    piece = chance.choice(
        (chance.randbytes(end - begin), chance.randbytes(1), data[begin:end] * 2, data[: end // 2], b"")
    )
    data[begin:end] = piece
    return replace(call, message=bytes(data))


def _of_fields(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes fields of the message."""
    try:
        message = program_pb2.Program.FromString(call.message) if call.message else to_message(call.graph)
    except DecodeError:
        return _of_bytes(chance, call)
    for _ in range(chance.choice((1, 1, 2))):
        _change_field(chance, chance.choice(list(_messages(message))))
    return replace(call, message=message.SerializeToString(deterministic=True))


def _messages(message: Message) -> Iterator[Message]:
    """Yields a message and every message in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else (value,):
                yield from _messages(item)


def _change_field(chance: random.Random, message: Message) -> None:
    field = chance.choice(message.DESCRIPTOR.fields)
    if chance.random() < 0.1:
        message.ClearField(field.name)
    elif not field.is_repeated:
        if field.message_type is not None:
            getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, _scalar(chance, field))
    elif field.message_type is None:
        getattr(message, field.name).extend([_scalar(chance, field)] * chance.choice((1, 2, 64)))
    else:
        _change_items(chance, getattr(message, field.name))


def _scalar(chance: random.Random, field: FieldDescriptor) -> Any:
    value = chance.choice(_SCALARS[field.cpp_type])
    return value.encode() if field.type == FieldDescriptor.TYPE_BYTES else value


def _change_items(chance: random.Random, items: Any) -> None:
    at = chance.randrange(len(items) + 1)
    match chance.randrange(4):
        case 0:
            items.add()
        case 1:
            del items[at : at + 1]
        case 2 if items:
            items.extend([items[at % len(items)]] * chance.choice((1, 70, 300, 5000)))
        case _:
            kept = [items[i] for i in chance.sample(range(len(items)), len(items))]
            copies = [type(item).FromString(item.SerializeToString()) for item in kept]
            del items[:]
            items.extend(copies)


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
