"""The functions that have a method: their signatures, NumPy's rules for their results, and the results' sharding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from shardcall_core.functions import (
    axis_rules,
    creation_rules,
    element_rules,
    layout_rules,
    rows_fft,
    rows_linalg,
    rows_special,
    rows_statistics,
    shape_rules,
    type_rules,
    update_rules,
)
from shardcall_core.functions.function import REQUIRED, Function, Operand
from shardcall_core.functions.shape_rules import ShapeRule

UNARY = (
    *("sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh"),
    *("degrees", "radians", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "square"),
    *("reciprocal", "absolute", "abs", "negative", "positive", "sign", "floor", "ceil", "trunc", "rint", "conjugate"),
    *("real", "imag", "angle", "isnan", "isinf", "isfinite", "signbit", "logical_not", "invert"),
)
"""The elementwise functions of one operand."""

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
"""The elementwise functions that compare two operands."""

BINARY = (
    *COMPARISONS,
    *("add", "subtract", "multiply", "divide", "true_divide", "floor_divide", "remainder", "mod", "fmod", "power"),
    *("float_power", "arctan2", "hypot", "logaddexp", "logaddexp2", "copysign", "maximum", "minimum", "fmax", "fmin"),
    *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("left_shift", "right_shift", "gcd", "lcm"),
)
"""The elementwise functions of two operands."""

WITH_INITIAL = ("sum", "prod", "max", "min")
"""The reductions that take an initial value."""

WITH_WHERE = (*WITH_INITIAL, "mean", "var", "std", "any", "all")
"""The reductions that take a mask."""

REDUCTIONS = (*WITH_WHERE, "argmax", "argmin")

_X = Operand("x", spec="spec")
_WHERE = Operand("where", optional=True)
_INITIAL = Operand("initial", optional=True)
_SPACING = Operand("spacing", optional=True, repeated=True)
_SEED = Operand("seed")
_FACTORS = (Operand("lhs", spec="lhs_spec"), Operand("rhs", spec="rhs_spec"))

_OF_X = "that of ``x``"
_OF_OPERANDS = "that of the largest operand, the first of equals; of axes that it does not have, that of the next"
_OF_OTHERS = "its own on the mesh, else that of the other operands, else the first axis, over all mesh axes"


def _elementwise(name: str, *operands: Operand) -> Function:
    types, spec = type_rules.elementwise(name), _OF_OTHERS if len(operands) > 1 else Function.operand_spec
    return Function(name, operands, {}, types, shape_rules.broadcast, _OF_OPERANDS, operand_spec=spec)


def _reduction(name: str) -> Function:
    operands = (_X, *[_WHERE] * (name in WITH_WHERE), *[_INITIAL] * (name in WITH_INITIAL))
    parameters: dict[str, Any] = {"axis": None, "keepdims": False}
    if name in ("sum", "prod", "mean"):
        parameters["dtype"] = None
    elif name in ("var", "std"):
        parameters["ddof"] = 0
    types, shapes, spec = type_rules.reduction(name), shape_rules.reduction, "that of ``x``, without the reduced axes"
    return Function(name, operands, parameters, types, shapes, spec)


def _like_x(name: str, *others: Operand, spec: str = _OF_X, **parameters: Any) -> Function:
    return Function(name, (_X, *others), parameters, type_rules.as_operand(0), shape_rules.as_operand(0), spec)


def _product(name: str, operands: tuple[Operand, ...], parameters: Mapping[str, Any], shapes: ShapeRule) -> Function:
    spec = "that of the operands, axis by axis, each mesh axis once; or the one that the strategy produces"
    return Function(
        name,
        operands,
        parameters,
        type_rules.product,
        shapes,
        spec,
        operand_spec="its own on the mesh, else the kernel's choice",
    )


def _random(name: str, low: str, high: str, dtype: str) -> Function:
    operands = _SEED, *(Operand(bound, optional=name != "randint") for bound in (low, high))
    parameters = {"shape": REQUIRED, "dtype": dtype}
    return Function(
        name, operands, parameters, type_rules.requested, shape_rules.requested, "its first axis, over all mesh axes"
    )


def _functions() -> Iterator[Function]:
    for name in UNARY:
        yield _elementwise(name, _X)
    for name in BINARY:
        yield _elementwise(name, _X, Operand("y", spec="y_spec"))
    yield _elementwise("where", Operand("condition", "spec"), Operand("x", "x_spec"), Operand("y", "y_spec"))
    bounds = Operand("min", "min_spec", optional=True), Operand("max", "max_spec", optional=True)
    yield _elementwise("clip", _X, *bounds)
    yield from map(_reduction, REDUCTIONS)

    edges = Operand("prepend", optional=True), Operand("append", optional=True)
    yield Function("diff", (_X, *edges), {"n": 1, "axis": -1}, type_rules.diff, shape_rules.diff, _OF_X)
    yield _like_x("shift", Operand("fill", optional=True), shift=REQUIRED, axis=-1, mode="fill")
    yield _like_x("roll", shift=REQUIRED, axis=None)
    spaced = (_X, _SPACING)
    parameters: dict[str, Any] = {"axis": None, "edge_order": 1}
    yield Function("gradient", spaced, parameters, type_rules.derivative, shape_rules.gradient, _OF_X, ())
    parameters = {"axes": None, "boundary": "periodic"}
    yield Function("laplacian", spaced, parameters, type_rules.laplacian, shape_rules.as_operand(0), _OF_X)
    parameters = {"axis": None, "dtype": None}
    yield Function("cumsum", (_X,), parameters, type_rules.cumsum, shape_rules.cumsum, _OF_X)
    parameters = {"mode": "full", "axis": -1}
    yield Function("convolve", (_X, Operand("v")), parameters, type_rules.common, shape_rules.convolve, _OF_X)

    parameters = {"transpose_lhs": False, "transpose_rhs": False, "preferred_element_type": None}
    yield _product("matmul", _FACTORS, parameters, shape_rules.matmul)
    arrays = (_FACTORS[0], Operand("rhs", "rhs_spec", optional=True), Operand("others", optional=True, repeated=True))
    yield _product("einsum", arrays, {"subscripts": REQUIRED, "preferred_element_type": None}, shape_rules.einsum)
    yield _product("collective_matmul", _FACTORS, {"axis_name": REQUIRED}, shape_rules.matmul)

    yield _random("uniform", "low", "high", "float64")
    yield _random("normal", "loc", "scale", "float64")
    yield _random("randint", "low", "high", "int64")
    types, shapes = type_rules.as_operand(1), shape_rules.as_operand(1)
    yield Function("permutation", (_SEED, _X), {"axis": 0}, types, shapes, _OF_X)

    yield _like_x("reshard")
    yield _like_x("copy")
    spec = "that of ``x``, axis by axis"
    yield Function("transpose", (_X,), {"axes": None}, type_rules.as_operand(0), shape_rules.transpose, spec)
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
    of_x, own, kept = type_rules.as_operand(0), layout_rules, "that of ``x`` along the axes that it keeps"
    arrays, of_first = (Operand("arrays", repeated=True),), "that of the first array"
    formed = f"{kept}, and along the first other one that of the first axis of ``x`` that it does not keep"
    starts = {"sizes": REQUIRED, "steps": REQUIRED, "dropped": (), "inserted": ()}
    yield Function("getitem", (_X, Operand("starts")), starts, type_rules.getitem, own.getitem, kept)
    assigned = _X, Operand("values"), Operand("starts")
    yield Function("setitem", assigned, starts, type_rules.setitem, own.setitem, _OF_X)
    yield Function("reshape", (_X,), {"shape": REQUIRED}, of_x, own.reshape, formed)
    yield Function("expand_dims", (_X,), {"axis": REQUIRED}, of_x, own.expand_dims, kept)
    yield Function("squeeze", (_X,), {"axis": None}, of_x, own.squeeze, kept)
    yield Function("broadcast_to", (_X,), {"shape": REQUIRED}, of_x, own.broadcast_to, kept)
    yield Function("flip", (_X,), {"axis": None}, of_x, own.flip, _OF_X)
    yield Function("concatenate", arrays, {"axis": 0}, type_rules.joined, own.concatenate, of_first)
    yield Function("stack", arrays, {"axis": 0}, type_rules.joined, own.stack, of_first)
    yield Function("astype", (_X,), {"dtype": REQUIRED}, type_rules.astype, shape_rules.as_operand(0), _OF_X)
    yield Function("tile", (_X,), {"reps": REQUIRED}, of_x, own.tile, _OF_X)
    yield Function("repeat", (_X,), {"repeats": REQUIRED, "axis": None}, of_x, own.repeat, _OF_X)
    yield Function("tril", (_X,), {"k": 0}, of_x, own.triangle, _OF_X)
    yield Function("triu", (_X,), {"k": 0}, of_x, own.triangle, _OF_X)
    diagonal: dict[str, Any] = {"offset": 0, "axis1": 0, "axis2": 1}
    yield Function("diagonal", (_X,), diagonal, of_x, own.diagonal, kept)
    yield Function("trace", (_X,), {**diagonal, "dtype": None}, type_rules.trace, own.trace, kept)
    padded = _X, Operand("constant_values", optional=True)
    yield Function("pad", padded, {"pad_width": REQUIRED, "mode": "constant"}, type_rules.pad, own.pad, _OF_X)


def _along_axes() -> Iterator[Function]:
    yield Function("sort", (_X,), {"axis": -1}, type_rules.as_operand(0), axis_rules.sort, _OF_X)
    yield Function("argsort", (_X,), {"axis": -1}, type_rules.indices, axis_rules.sort, _OF_X)
    operands, kept = (_X, Operand("indices")), "that of ``x`` along the axes that it keeps"
    yield Function("take", operands, {"axis": None}, type_rules.taken, axis_rules.take, kept)
    yield Function("take_along_axis", operands, {"axis": -1}, type_rules.taken, axis_rules.take_along_axis, kept)
    spec = "that of ``x`` without its first axis"
    yield Function("lexsort", (_X,), {"axis": -1}, type_rules.indices, axis_rules.lexsort, spec)


def _creations() -> Iterator[Function]:
    own, rows = creation_rules, "its first axis, over all mesh axes"
    start, second, last = Operand("start"), Operand("second"), Operand("last", optional=True)
    size, value = {"size": REQUIRED}, Operand("fill_value")
    yield Function("full", (value,), {"shape": REQUIRED}, type_rules.as_operand(0), own.full, rows)
    yield Function("full_like", (_X, value), {}, type_rules.as_operand(1), own.full_like, _OF_X)
    yield Function("arange", (start, second), size, own.sequence_type, own.sequence, rows)
    yield Function("linspace", (start, Operand("step"), last), size, own.linspace_type, own.sequence, rows)
    yield Function("eye", (Operand("k"),), {"shape": REQUIRED, "dtype": "float64"}, own.eye_type, own.eye, rows)


def _elements() -> Iterator[Function]:
    own, spec = element_rules, "that of ``x`` along the axes that it keeps"
    operands = _X, Operand("y", spec="y_spec")
    yield Function("nextafter", operands, {}, own.nextafter_type, own.broadcast, spec)


def _updates() -> Iterator[Function]:
    own, values, indices = update_rules, Operand("values"), Operand("indices", repeated=True)
    at: dict[str, Any] = {"axes": REQUIRED, "position": 0}
    kept = "that of ``x`` along the axes that it keeps"
    yield Function("take_at", (_X, indices), at, own.take_at_type, own.take_at, kept)
    yield Function("put_at", (_X, values, indices), {**at, "mode": "set"}, own.put_at_type, own.put_at, _OF_X)
    along, types = (_X, values, Operand("indices")), own.put_along_axis_type
    yield Function("put_along_axis", along, {"axis": -1}, types, own.put_along_axis, _OF_X)
    spec = "that of the first axis of ``x``"
    yield Function("flatnonzero", (_X,), {"size": REQUIRED}, type_rules.indices, own.flatnonzero, spec)


FUNCTIONS: Mapping[str, Function] = MappingProxyType({function.name: function for function in _functions()})
"""All functions, by name."""
