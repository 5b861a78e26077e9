"""The functions that have a method: their signatures, NumPy's rules for their results, and the results' sharding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from shardcall_core.functions import (
    axis_rules,
    creation_rules,
    element_rules,
    elementwise,
    layout_rules,
    products,
    random,
    reductions,
    relayouts,
    rows_fft,
    rows_linalg,
    rows_special,
    rows_statistics,
    shape_rules,
    stencils,
    type_rules,
    update_rules,
)
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import REQUIRED, OperandInfo

_X = OperandInfo("x", spec="spec")

_OF_X = "that of ``x``"


def _functions() -> Iterator[Function]:
    families = elementwise, reductions, stencils, products, random, relayouts
    for family in families:
        yield from family.rows()
    yield from _layouts()
    yield from _along_axes()
    yield from _creations()
    yield from rows_statistics.rows()
    yield from rows_fft.rows()
    yield from _elements()
    yield from _updates()
    yield from rows_linalg.rows()
    yield from rows_special.rows()


def _layouts() -> Iterator[Function]:
    of_x, rules, kept = type_rules.as_operand(0), layout_rules, "that of ``x`` along the axes that it keeps"
    arrays, of_first = (OperandInfo("arrays", repeated=True),), "that of the first array"
    formed = f"{kept}, and along the first other one that of the first axis of ``x`` that it does not keep"
    starts = {"sizes": REQUIRED, "steps": REQUIRED, "dropped": (), "inserted": ()}
    yield Function.by_rules("getitem", (_X, OperandInfo("starts")), starts, type_rules.getitem, rules.getitem, kept)
    assigned = _X, OperandInfo("values"), OperandInfo("starts")
    yield Function.by_rules("setitem", assigned, starts, type_rules.setitem, rules.setitem, _OF_X)
    yield Function.by_rules("reshape", (_X,), {"shape": REQUIRED}, of_x, rules.reshape, formed)
    yield Function.by_rules("expand_dims", (_X,), {"axis": REQUIRED}, of_x, rules.expand_dims, kept)
    yield Function.by_rules("squeeze", (_X,), {"axis": None}, of_x, rules.squeeze, kept)
    yield Function.by_rules("broadcast_to", (_X,), {"shape": REQUIRED}, of_x, rules.broadcast_to, kept)
    yield Function.by_rules("flip", (_X,), {"axis": None}, of_x, rules.flip, _OF_X)
    yield Function.by_rules("concatenate", arrays, {"axis": 0}, type_rules.joined, rules.concatenate, of_first)
    yield Function.by_rules("stack", arrays, {"axis": 0}, type_rules.joined, rules.stack, of_first)
    yield Function.by_rules("astype", (_X,), {"dtype": REQUIRED}, type_rules.astype, shape_rules.as_operand(0), _OF_X)
    yield Function.by_rules("tile", (_X,), {"reps": REQUIRED}, of_x, rules.tile, _OF_X)
    yield Function.by_rules("repeat", (_X,), {"repeats": REQUIRED, "axis": None}, of_x, rules.repeat, _OF_X)
    yield Function.by_rules("tril", (_X,), {"k": 0}, of_x, rules.triangle, _OF_X)
    yield Function.by_rules("triu", (_X,), {"k": 0}, of_x, rules.triangle, _OF_X)
    diagonal: dict[str, Any] = {"offset": 0, "axis1": 0, "axis2": 1}
    yield Function.by_rules("diagonal", (_X,), diagonal, of_x, rules.diagonal, kept)
    yield Function.by_rules("trace", (_X,), {**diagonal, "dtype": None}, type_rules.trace, rules.trace, kept)
    padded = _X, OperandInfo("constant_values", optional=True)
    yield Function.by_rules(
        "pad", padded, {"pad_width": REQUIRED, "mode": "constant"}, type_rules.pad, rules.pad, _OF_X
    )


def _along_axes() -> Iterator[Function]:
    yield Function.by_rules("sort", (_X,), {"axis": -1}, type_rules.as_operand(0), axis_rules.sort, _OF_X)
    yield Function.by_rules("argsort", (_X,), {"axis": -1}, type_rules.indices, axis_rules.sort, _OF_X)
    operands, kept = (_X, OperandInfo("indices")), "that of ``x`` along the axes that it keeps"
    yield Function.by_rules("take", operands, {"axis": None}, type_rules.taken, axis_rules.take, kept)
    yield Function.by_rules(
        "take_along_axis", operands, {"axis": -1}, type_rules.taken, axis_rules.take_along_axis, kept
    )
    spec = "that of ``x`` without its first axis"
    yield Function.by_rules("lexsort", (_X,), {"axis": -1}, type_rules.indices, axis_rules.lexsort, spec)


def _creations() -> Iterator[Function]:
    rules, rows = creation_rules, "its first axis, over all mesh axes"
    start, second, last = OperandInfo("start"), OperandInfo("second"), OperandInfo("last", optional=True)
    size, value = {"size": REQUIRED}, OperandInfo("fill_value")
    yield Function.by_rules("full", (value,), {"shape": REQUIRED}, type_rules.as_operand(0), rules.full, rows)
    yield Function.by_rules("full_like", (_X, value), {}, type_rules.as_operand(1), rules.full_like, _OF_X)
    yield Function.by_rules("arange", (start, second), size, rules.arange_type, rules.sequence("start", "second"), rows)
    yield Function.by_rules(
        "linspace",
        (start, OperandInfo("step"), last),
        size,
        rules.linspace_type,
        rules.sequence("start", "step", "last"),
        rows,
    )
    yield Function.by_rules(
        "eye", (OperandInfo("k"),), {"shape": REQUIRED, "dtype": "float64"}, rules.eye_type, rules.eye, rows
    )


def _elements() -> Iterator[Function]:
    rules, spec = element_rules, "that of ``x`` along the axes that it keeps"
    operands = _X, OperandInfo("y", spec="y_spec")
    yield Function.by_rules("nextafter", operands, {}, rules.nextafter_type, rules.broadcast, spec)


def _updates() -> Iterator[Function]:
    rules, values, indices = update_rules, OperandInfo("values"), OperandInfo("indices", repeated=True)
    at: dict[str, Any] = {"axes": REQUIRED, "position": 0}
    kept = "that of ``x`` along the axes that it keeps"
    yield Function.by_rules("take_at", (_X, indices), at, rules.take_at_type, rules.take_at, kept)
    yield Function.by_rules(
        "put_at", (_X, values, indices), {**at, "mode": "set"}, rules.put_at_type, rules.put_at, _OF_X
    )
    along, types = (_X, values, OperandInfo("indices")), rules.put_along_axis_type
    yield Function.by_rules("put_along_axis", along, {"axis": -1}, types, rules.put_along_axis, _OF_X)
    spec = "that of the first axis of ``x``"
    yield Function.by_rules("flatnonzero", (_X,), {"size": REQUIRED}, type_rules.indices, rules.flatnonzero, spec)


FUNCTIONS: Mapping[str, Function] = MappingProxyType({function.name: function for function in _functions()})
"""All functions, by name."""
