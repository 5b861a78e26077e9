"""The arguments that functions accept, beyond those for which the rules of types and shapes raise exceptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from shardcall_core.functions.element_types import NAMED, DType, is_float
from shardcall_core.functions.shape_rules import Parameters, Shape
from shardcall_core.functions.subscripts import parse
from shardcall_core.functions.type_rules import AVERAGES

OperandType: TypeAlias = tuple[Shape, DType]
"""The shape and the element type of an operand."""

OperandTypes: TypeAlias = Sequence[OperandType | None]
"""The operands of a call; None for one left out."""

ArgumentRule: TypeAlias = Callable[[OperandTypes, Parameters], bool]
"""Returns True if a call's arguments are accepted; may raise any exception if they are not."""

_MAX_ORDER = 1024
_MAX_RANK = 32
_TYPE_ORDER = "biufc"  # a value of one kind fits into arrays of its own and of later ones; i and u are one


def _reduction(name: str) -> ArgumentRule:
    index, chooses = name in ("argmax", "argmin"), name in ("argmax", "argmin", "max", "min")

    def rule(operands: OperandTypes, parameters: Parameters) -> bool:
        ((x, dtype),), axis = _all(operands[:1]), parameters["axis"]
        _, where, initial = (*operands, None, None)[:3]
        of_scalar = not x and axis in (0, -1) and _is_integer(axis) and name not in AVERAGES
        axes = () if of_scalar else _counted(axis, len(x))
        starts = initial is not None or not chooses
        return (
            isinstance(parameters["keepdims"], int)
            and not (index and isinstance(axis, tuple))
            and _is_number(parameters.get("ddof", 0))
            and (where is None or (starts and np.broadcast_shapes(where[0], x) == x))
            and (starts or 0 not in [x[i] for i in axes])
            and (initial is None or (not initial[0] and (initial[1].kind != "c" or dtype.kind == "c")))
        )

    return rule


def _diff(operands: OperandTypes, parameters: Parameters) -> bool:
    ((x, _),), edges = _all(operands[:1]), operands[1:]
    n, axis = parameters["n"], parameters["axis"]
    if not (_is_integer(n) and _is_integer(axis) and n >= 0):
        return False
    if not n:
        return True
    (along,) = _counted(axis, len(x))
    shapes = [edge[0] for edge in edges if edge is not None and edge[0]]
    fit = all(_without(shape, along) == _without(x, along) and len(shape) == len(x) for shape in shapes)
    rows = x[along] + sum(edge[0][along] if edge[0] else 1 for edge in edges if edge is not None)
    return fit and (n <= _MAX_ORDER or rows <= n or 0 in _without(x, along))


def _convolve(operands: OperandTypes, parameters: Parameters) -> bool:
    ((x, _), (v, _)), axis, mode = _all(operands), parameters["axis"], parameters["mode"]
    (along,) = _counted(axis, len(x))
    modes = ("full", "same", "valid") if isinstance(mode, str) else range(3)
    return _is_integer(axis) and not isinstance(mode, bool) and mode in modes and 0 not in (x[along], *v)


def _moved_axes(x: Shape, parameters: Parameters) -> list[int]:
    axes = [i for axis in _integers(parameters["axis"]) for i in _counted(axis, len(x))]
    shifts = _integers(parameters["shift"])
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        raise ValueError(f"{len(shifts)} shifts for {len(axes)} axes")
    return [] if not axes or not shifts else axes * (len(shifts) if len(axes) == 1 else 1)


def _roll(operands: OperandTypes, parameters: Parameters) -> bool:
    ((x, _),) = _all(operands)
    flat = parameters["axis"] is None
    return isinstance(_moved_axes((1,), {**parameters, "axis": 0}) if flat else _moved_axes(x, parameters), list)


def _shift(operands: OperandTypes, parameters: Parameters) -> bool:
    ((x, dtype),), fill = _all(operands[:1]), operands[1]
    moved = _moved_axes(x, parameters)
    if parameters["mode"] == "periodic":
        return bool(x) and fill is None
    fits = fill is None or (not fill[0] and _type_rank(fill[1]) <= _type_rank(dtype))
    return bool(x) and parameters["mode"] == "fill" and fits and len(set(moved)) == len(moved)


def _spacing(spacing: Sequence[OperandType], axes: Sequence[int], allowed: Sequence[Sequence[Shape]]) -> bool:
    """Accepts no spacing, a real scalar for all axes, or for each axis a real array of an allowed shape."""
    if any(dtype.kind in "bc" for _, dtype in spacing) or len(spacing) not in (0, 1, len(axes)):
        return False
    shapes = [shape for shape, _ in spacing]
    return shapes in ([], [()]) or all(shape in choices for shape, choices in zip(shapes, allowed, strict=True))


def _gradient(operands: OperandTypes, parameters: Parameters) -> bool:
    (x, dtype), *spacing = _all(operands)
    axes, order = _counted(parameters["axis"], len(x)), parameters["edge_order"]
    is_valid = _is_integer(order) and order in (1, 2) and dtype.kind != "b" and bool(axes)
    return is_valid and all(x[i] > order for i in axes) and _spacing(spacing, axes, [((), (x[i],)) for i in axes])


def _laplacian(operands: OperandTypes, parameters: Parameters) -> bool:
    (x, dtype), *spacing = _all(operands)
    axes = _counted(parameters["axes"], len(x))
    is_valid = parameters["boundary"] in ("periodic", "zero", "edge") and dtype.kind != "b" and bool(axes)
    return is_valid and _spacing(spacing, axes, [((),)] * len(axes))


def _cumsum(operands: OperandTypes, parameters: Parameters) -> bool:
    ((x, dtype),), axis, into = _all(operands), parameters["axis"], parameters["dtype"]
    has_axis = axis is None or (_is_integer(axis) and bool(_counted(axis, max(len(x), 1))))
    return has_axis and (into is None or NAMED[into].kind == "c" or dtype.kind != "c")


def _matmul(operands: OperandTypes, parameters: Parameters) -> bool:
    (lhs, _), (rhs, _) = _all(operands)
    transposed = [parameters.get(f"transpose_{side}", False) for side in ("lhs", "rhs")]
    if not all(isinstance(flag, bool) for flag in transposed):
        return False
    if any(flag and len(shape) < 2 for flag, shape in zip(transposed, (lhs, rhs), strict=True)):
        return False
    contracted = lhs[-2 if transposed[0] else -1], rhs[-1 if transposed[1] or len(rhs) < 2 else -2]
    return contracted[0] == contracted[1] and _product(operands, parameters)


def _collective_matmul(operands: OperandTypes, parameters: Parameters) -> bool:
    is_named = isinstance(parameters["axis_name"], str)
    return is_named and all(len(shape) == 2 for shape, _ in _all(operands)) and _matmul(operands, parameters)


def _einsum(operands: OperandTypes, parameters: Parameters) -> bool:
    arrays = _all(operands)
    labels, _ = parse(parameters["subscripts"], [shape for shape, _ in arrays])
    sizes: dict[str, int] = {}
    for axes, (shape, _) in zip(labels, arrays, strict=True):
        operand_sizes: dict[str, int] = {}
        for label, size in zip(axes, shape, strict=True):
            if operand_sizes.setdefault(label, size) != size or len({size, sizes.get(label, 1), 1}) > 2:
                return False
            if sizes.get(label, 1) == 1:
                sizes[label] = size
    return arrays == list(operands[: len(arrays)]) and _product(operands, parameters)


def _product(operands: OperandTypes, parameters: Parameters) -> bool:
    common = np.result_type(*(operand[1] for operand in operands if operand is not None))
    preferred = parameters.get("preferred_element_type")
    return preferred is None or np.promote_types(NAMED[preferred], common) == NAMED[preferred]


def _random(types: Callable[[DType], bool], bound_types: str) -> ArgumentRule:
    def rule(operands: OperandTypes, parameters: Parameters) -> bool:
        sizes = _integers(parameters["shape"])
        seed, *bounds = (operand for operand in operands if operand is not None)
        return (
            _is_seed(seed)
            and all(not shape and dtype.kind in bound_types for shape, dtype in bounds)
            and types(NAMED[parameters["dtype"]])
            and len(sizes) <= _MAX_RANK
            and min(sizes, default=0) >= 0
        )

    return rule


def _permutation(operands: OperandTypes, parameters: Parameters) -> bool:
    (seed, (x, _)), axis = _all(operands), parameters["axis"]
    return _is_seed(seed) and _is_integer(axis) and bool(_counted(axis, len(x)))


def _transpose(operands: OperandTypes, parameters: Parameters) -> bool:
    ((x, _),) = _all(operands)
    return len(_counted(parameters["axes"], len(x))) == len(x)


def _all(operands: OperandTypes) -> list[OperandType]:
    return [operand for operand in operands if operand is not None]


def _without(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], *shape[axis + 1 :])


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _integers(value: Any) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return value
    if not _is_integer(value):
        raise TypeError(f"{value!r} is no integer")
    return (value,)


def _counted(axes: Any, ndim: int) -> tuple[int, ...]:
    """Returns axes counted from the first; all for None.

    Raises:
        ValueError: if there is no such axis, or one is named twice.
    """
    values = tuple(range(ndim)) if axes is None else _integers(axes)
    counted = tuple(axis % ndim for axis in values if -ndim <= axis < ndim)
    if len(set(counted)) < len(values):
        raise ValueError(f"{axes} are not axes of {ndim}")
    return counted


def _is_seed(operand: OperandType) -> bool:
    return not operand[0] and operand[1].kind in "iu"


def _type_rank(dtype: DType) -> int:
    if is_float(dtype):
        return _TYPE_ORDER.index("f")
    name = dtype.name.lstrip("u") if "int" in dtype.name else dtype.kind
    return _TYPE_ORDER.index(name[0])


_REDUCTIONS = ("sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "argmax", "argmin")

ARGUMENT_RULES: Mapping[str, ArgumentRule] = MappingProxyType(
    {
        **{name: _reduction(name) for name in _REDUCTIONS},
        "diff": _diff,
        "convolve": _convolve,
        "roll": _roll,
        "shift": _shift,
        "gradient": _gradient,
        "laplacian": _laplacian,
        "cumsum": _cumsum,
        "matmul": _matmul,
        "collective_matmul": _collective_matmul,
        "einsum": _einsum,
        "uniform": _random(lambda dtype: is_float(dtype) and dtype.itemsize > 1, "biuf"),
        "normal": _random(lambda dtype: dtype.kind == "c" or (is_float(dtype) and dtype.itemsize > 1), "biuf"),
        "randint": _random(lambda dtype: dtype.kind in "iu", "iu"),
        "permutation": _permutation,
        "transpose": _transpose,
    }
)
"""The rules of functions that do not accept all arguments, by name."""
