"""Calls of the kernel ``graph`` changed at random: the text, the JSON in it, its meaning, and the operands.

The same seed and number make the same change.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from faults.graph_calls import GraphRequest, valid_call
from faults.graph_changes import CHANGES, VALUES, changed, names_of_control, written

from shardcall_core.graphs.graph import from_text

_PIECES = ('"', "\\", "[", "]", "{", "}", ",", "0", "-", "1e999", "NaN", "null", "\0", "💥", '"\\ud800"', "\u2028", " ")
_JSON: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, -64, -65, 2, 255, 2**31, 2**63, -(2**63) - 1, 10**400, 0.0, 1.5, 1e308),
    *(
        float("nan"),
        float("inf"),
        "",
        "add",
        "graph",
        "\0",
        "💥",
        "x" * 5000,
        [],
        [0],
        [0, 0],
        [-1, 0],
        [0, 63],
        [0, 64],
    ),
    *(
        [[]],
        [None],
        [0] * 65,
        list(range(300)),
        {},
        {"": 0},
        {"axis": 0},
        {"x" * 5000: 0},
        {"nodes": [], "results": [-1]},
    ),
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


def _of_text(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes characters."""
    text, begin = call.text, chance.randrange(len(call.text) + 1)
    end = min(len(text), begin + chance.choice((1, 1, 2, 9, 99)))
    piece = chance.choice((*_PIECES, text[begin:end], text[: end // 2], "[" * 3000, "9" * 5000))
    if end > begin and chance.random() < 0.3:
        piece = chr(ord(text[begin]) ^ 1 << chance.randrange(7))
    variant = chance.randrange(4)
    kept = text[begin:] if variant == 0 else text[end:] if variant < 3 else ""
    return replace(call, text=text[:begin] + ("" if variant == 2 else piece) + kept)


def _of_json(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes a part of the JSON, or how it is written."""
    try:
        data = json.loads(call.text)
    except (ValueError, RecursionError):
        return _of_text(chance, call)
    parts = list(_containers(data))
    if not parts:
        return call
    for _ in range(chance.choice((1, 1, 2))):
        container, key = chance.choice(parts)
        _change_json(chance, container, key)
    style: dict[str, Any] = {"separators": (",", ":"), "sort_keys": True}
    if chance.random() < 0.1:
        style = chance.choice(({"separators": (", ", ": ")}, {"separators": (",", ":"), "ensure_ascii": False}))
    try:
        text = json.dumps(data, **style)
    except RecursionError:
        text = "[" * 3000
    if chance.random() < 0.1:
        text = text[:-1] + "," + text[1:]  # every name twice
    return replace(call, text=text)


def _containers(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every list and object in JSON with each of its keys."""
    for key in list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield data, key
        yield from _containers(data[key])


def _change_json(chance: random.Random, container: Any, key: Any) -> None:
    if key not in container if isinstance(container, dict) else key >= len(container):
        return  # taken away before
    value = json.loads(json.dumps(chance.choice(_JSON)))
    match chance.randrange(5):
        case 0:
            del container[key]
        case 1 if isinstance(container, list):
            container.insert(key, value)
        case 1:
            container[chance.choice(("", "axis", "graph", "nodes", "strategy", "x" * 5000, "é"))] = value
        case 2 if isinstance(container, list):
            container[key:key] = [container[key]] * chance.choice((1, 70, 300))
        case 3:
            for _ in range(chance.choice((1, 3, 500))):
                container[key] = [container[key]]
        case _:
            container[key] = value


def _of_meaning(chance: random.Random, call: GraphRequest) -> GraphRequest:
    """Changes nodes, operands, parameters, specs or results, of the graph or of one in it."""
    try:
        graph = from_text(call.text)
    except ValueError:
        return _of_text(chance, call)
    for _ in range(chance.choice((1, 1, 2, 3))):
        graph = changed(chance, graph, chance.choice(CHANGES))
    text, used = written(chance, graph)
    if not used or max(used) >= len(call.operands):
        return replace(call, text=text)
    others = call.operands[max(used) + 1 :]  # first values, tangents and numbers of iterations
    return replace(call, text=text, operands=(*(call.operands[i] for i in used), *others), in_specs=())


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
_MUTATIONS: tuple[_Mutation, ...] = (
    *(_of_text, _of_json, _of_parameters, _of_operands),
    *(_of_meaning,) * 12,
)
