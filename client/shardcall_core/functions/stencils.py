"""Functions of rows and their neighbours: differences, shifts, derivatives, convolutions and running sums."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

import numpy as np

from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.element_types import DType, is_float, is_inexact
from shardcall_core.functions import checks
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import REQUIRED, Method, OperandInfo, ParameterInfo, ParameterValues, Signature
from shardcall_core.layouts.layout import ArrayType, OperandTypes, required

MAX_ORDER = 1024
"""The highest order of a difference: above it a binomial coefficient exceeds float64's range."""

SHIFT_MODES = ("fill", "periodic")

Boundary: TypeAlias = Literal["periodic", "zero", "edge"]
BOUNDARIES: tuple[Boundary, ...] = ("periodic", "zero", "edge")

CONVOLVE_MODES = ("valid", "same", "full")
"""The modes of a convolution, in the order of NumPy's numbers."""

_TYPE_CODES = "biufc"  # of NumPy; a value fits into arrays of its own type code and of later ones; i and u are equal


@dataclass(frozen=True)
class DiffParameters:
    """The parameters of `diff`."""

    n: int
    axis: int


@dataclass(frozen=True)
class ShiftParameters:
    """The parameters of `shift` and `roll`: for each of the axes its shift; no axes stand for the flattened array."""

    shift: tuple[int, ...]
    axis: tuple[int, ...] | None
    mode: str


@dataclass(frozen=True)
class GradientParameters:
    """The parameters of `gradient`."""

    axis: tuple[int, ...]
    edge_order: int


@dataclass(frozen=True)
class LaplacianParameters:
    """The parameters of `laplacian`."""

    axes: tuple[int, ...]
    boundary: Boundary


@dataclass(frozen=True)
class CumSumParameters:
    """The parameters of `cumsum`: the axis, None to flatten x, and the name of the result's element type."""

    axis: int | None
    dtype: str


@dataclass(frozen=True)
class ConvolveParameters:
    """The parameters of `convolve`."""

    mode: str
    axis: int


def rows() -> Iterator[Function]:
    """Yields the functions."""
    x, of_x = OperandInfo("x", "The array, of rank 1 or more and any element type.", spec="spec"), "that of ``x``"
    axis = ParameterInfo("axis", "The axis; negative ones count from the last.", -1, "Axis")
    axes = "The axis or axes; negative ones count from the last."
    yield Function(
        "diff",
        (
            x,
            OperandInfo("prepend", "Rows put before x along the axis: an array, or a scalar for one row.", True),
            OperandInfo("append", "Rows put behind x along the axis: an array, or a scalar for one row.", True),
        ),
        (
            ParameterInfo(
                "n", f"How many times to take the difference; 0 to {MAX_ORDER}, more if no row is left.", 1, "int"
            ),
            axis,
        ),
        _diff,
        of_x,
        summary="The n-th discrete difference along an axis, as numpy.diff.",
        method=Method(
            "x, n, axis, prepend, append", "A Python float that is prepended or appended is a float64, as in NumPy."
        ),
        example="np.array([1, 4, 9, 16])",
    )
    shift = ParameterInfo(
        "shift", "By how many rows, for all axes or for each; negative towards the first.", REQUIRED, "Axes"
    )
    fill = "A scalar: what rows hold that nothing moves to, converted to x's element type; 0."
    mode = ParameterInfo("mode", "'fill', or 'periodic' for numpy.roll.", "fill", "str")
    yield Function(
        "shift",
        (x, OperandInfo("fill", fill, True)),
        (shift, ParameterInfo("axis", axes, -1, "Axes"), mode),
        _shift,
        of_x,
        summary="Rows moved along one axis or several, as numpy.roll, or with a value where nothing moves to.",
        method=Method("x, shift, axis, fill, mode", "Row ``i`` of the result is row ``i - shift`` of ``x``."),
        example="np.arange(6), 2",
    )
    any_x = OperandInfo("x", "The array, of any rank and element type.", spec="spec")
    yield Function(
        "roll",
        (any_x,),
        (shift, ParameterInfo("axis", f"{axes} None: x is flattened, and keeps its shape.", None, "Axes | None")),
        _roll,
        of_x,
        summary="Elements moved round along one axis or several, as numpy.roll.",
        method=Method("x, shift, axis"),
        example="np.arange(6), 2",
    )
    number = OperandInfo("x", "The array, of rank 1 or more and any element type but bool.", spec="spec")
    steps = "None for steps of 1, a scalar for all axes, or for each a scalar or the coordinates along it."
    named = "The axis or axes; None for all. Negative ones count from the last."
    yield Function(
        "gradient",
        (number, OperandInfo("spacing", steps, True, True)),
        (
            ParameterInfo("axis", named, None, "Axes | None"),
            ParameterInfo("edge_order", "The order of the one-sided differences at the ends: 1 or 2.", 1, "int"),
        ),
        _gradient,
        of_x,
        (),
        summary="The derivative along one or more axes, as numpy.gradient.",
        method=Method("x, *spacing, axis, edge_order", "There is one result for each axis."),
        example="np.array([1.0, 4.0, 9.0, 16.0])",
    )
    steps = "The step between elements: none for 1, a scalar for all axes, or one for each."
    boundary = ParameterInfo("boundary", "The values outside x: 'periodic', 'zero' or 'edge'.", "periodic", "str")
    yield Function(
        "laplacian",
        (number, OperandInfo("spacing", steps, True, True)),
        (ParameterInfo("axes", named, None, "Axes | None"), boundary),
        _laplacian,
        of_x,
        summary="The sum of second differences along several axes, as scipy.ndimage.laplace.",
        method=Method(
            "x, *spacing, axes, boundary",
            "The term of an axis is ``x[i - 1] - 2 * x[i] + x[i + 1]``, divided by the square of the axis's spacing.",
        ),
        example="np.eye(4)",
    )
    dtype = "The result's element type, by name. Unset: x's, a 64-bit one for shorter integers."
    yield Function(
        "cumsum",
        (any_x,),
        (
            ParameterInfo(
                "axis", "The axis; negative ones count from the last. Unset: x is flattened.", None, "Axis | None"
            ),
            ParameterInfo("dtype", dtype, None, "npt.DTypeLike | None"),
        ),
        _cumsum,
        of_x,
        summary="The running sum along an axis, as numpy.cumsum.",
        method=Method("x, axis, dtype"),
        example="np.arange(6)",
    )
    returned = "Which sums are returned: 'full', 'same' or 'valid'; or 2, 1 or 0, as in NumPy."
    yield Function(
        "convolve",
        (x, OperandInfo("v", "The window, of rank 1.")),
        (
            ParameterInfo("mode", returned, "full", "str | SupportsIndex"),
            ParameterInfo("axis", "The axis of x; negative ones count from the last.", -1, "Axis"),
        ),
        _convolve,
        of_x,
        summary="The convolution with a window along an axis, as numpy.convolve.",
        method=Method(
            "x, v, mode, axis",
            '``"full"`` returns size + length - 1 rows, ``"same"`` max(size, length), ``"valid"`` those where the '
            "shorter of both is covered. A number stands for an array of one element.",
        ),
        example="np.arange(6), [1, 2, 1], mode='same'",
    )


def edge_rows(edge: ArrayType | None, axis: int) -> int:
    """Returns the number of rows that `diff` prepends or appends."""
    return 0 if edge is None else edge.shape[axis] if edge.ndim else 1


def _diff(operands: OperandTypes, parameters: ParameterValues) -> Signature[DiffParameters]:
    x = required(operands[0])
    n, axis = checks.integer(parameters, "n"), checks.integer(parameters, "axis")
    if n < 0:
        raise CallError(Reason.INVALID_PARAMETER, f"n={n} is negative; the order n is 0 or more", field="n")
    if n == 0:  # NumPy returns x and looks at nothing else
        return Signature(DiffParameters(0, 0), (x,))
    axis = checks.axis_of(x, axis, "diff")
    row_count = x.shape[axis]
    _, prepend, append = operands
    for name, edge in (("prepend", prepend), ("append", append)):
        if edge is not None:
            _check_edge(name, edge, x, axis)
            row_count += edge_rows(edge, axis)
    joined = [(name, o) for name, o in (("prepend", prepend), ("x", x), ("append", append)) if o is not None]
    names, types = zip(*joined, strict=True)
    dtype = checks.common_type(names, types, "prepend" if append is None else "append")
    left = max(0, row_count - n)
    shape = (*x.shape[:axis], left, *x.shape[axis + 1 :])
    if n > MAX_ORDER and 0 not in shape:
        raise checks.invalid("n", n, f"the axis has {row_count} rows; give an n of at most {MAX_ORDER}")
    # All orders that leave nothing are one program.
    return Signature(DiffParameters(n if left else max(1, row_count), axis), (ArrayType(shape, dtype),))


def _check_edge(name: str, edge: ArrayType, x: ArrayType, axis: int) -> None:
    if not edge.ndim:
        return
    fits = edge.ndim == x.ndim and all(i == axis or size == edge.shape[i] for i, size in enumerate(x.shape))
    if not fits:
        message = (
            f"{name} has shape {shorten(str(edge.shape))} and x {shorten(str(x.shape))}; "
            f"give a scalar, or an array of x's shape in every axis but axis {axis}"
        )
        raise checks.operand(name, message)


def _shift(operands: OperandTypes, parameters: ParameterValues) -> Signature[ShiftParameters]:
    x, fill = required(operands[0]), operands[1]
    _check_axes(x)
    mode, moves = checks.one_of(parameters, "mode", SHIFT_MODES), _moves(parameters, x.ndim)
    if fill is not None:
        _check_fill(fill, x, mode)
    if mode == "periodic":
        return Signature(_periodic(moves, x), (x,))
    if len({axis for axis, _ in moves}) < len(moves):
        raise checks.invalid("axis", parameters["axis"], "it names an axis of x twice; name each once")
    shifts = tuple(max(-x.shape[axis], min(shift, x.shape[axis])) for axis, shift in moves)
    return Signature(ShiftParameters(shifts, tuple(axis for axis, _ in moves), mode), (x,))


def _roll(operands: OperandTypes, parameters: ParameterValues) -> Signature[ShiftParameters]:
    x = required(operands[0])
    if parameters["axis"] is not None:
        return Signature(_periodic(_moves(parameters, x.ndim), x), (x,))
    total = sum(checks.integers(parameters, "shift"))
    if x.ndim == 1:
        return Signature(_periodic([(0, total)], x), (x,))
    return Signature(ShiftParameters((total % max(math.prod(x.shape), 1),), None, "periodic"), (x,))


def _moves(parameters: ParameterValues, ndim: int) -> list[tuple[int, int]]:
    """Returns the axes, counted from the first, each with its shift."""
    axes = [checks.counted("axis", axis, ndim) for axis in checks.integers(parameters, "axis")]
    shifts = checks.integers(parameters, "shift")
    if len(axes) != len(shifts) and 1 not in (len(axes), len(shifts)):
        message = f"{len(shifts)} shifts for {len(axes)} axes; give one for all, or one for each"
        raise CallError(Reason.INVALID_PARAMETER, message, field="shift")
    count = 0 if not axes or not shifts else max(len(axes), len(shifts))
    return [(axes[i % len(axes)], shifts[i % len(shifts)]) for i in range(count)]


def _periodic(moves: Sequence[tuple[int, int]], x: ArrayType) -> ShiftParameters:
    """Returns the parameters of a periodic shift: each axis once, in the shorter direction."""
    shifts: dict[int, int] = {}
    for axis, shift in sorted(moves):
        size = x.shape[axis]
        total = (shifts.get(axis, 0) + shift) % size if size else 0
        shifts[axis] = total - size if 2 * total > size else total
    return ShiftParameters(tuple(shifts.values()), tuple(shifts), "periodic")


def _check_fill(fill: ArrayType, x: ArrayType, mode: str) -> None:
    if mode == "periodic":
        raise checks.operand("fill", "mode='periodic' takes no fill; leave out one of them")
    if fill.ndim:
        raise checks.operand("fill", f"fill is {fill}; give a scalar")
    if _type_rank(fill.dtype) > _type_rank(x.dtype):
        message = f"fill is {fill.dtype.name} and x {x.dtype.name}, which cannot hold it; convert one of them"
        raise checks.operand("fill", message, Reason.UNSUPPORTED_ELEMENT_TYPE)


def _type_rank(dtype: DType) -> int:
    if is_float(dtype):
        return _TYPE_CODES.index("f")
    name = dtype.name.lstrip("u") if "int" in dtype.name else dtype.kind
    return _TYPE_CODES.index(name[0])


def _gradient(operands: OperandTypes, parameters: ParameterValues) -> Signature[GradientParameters]:
    x, *spacing = map(required, operands)
    named = _named_axes(parameters, "axis", x)
    edge_order = checks.integer(parameters, "edge_order")
    if edge_order not in (1, 2):
        raise checks.invalid("edge_order", edge_order, "give 1 or 2")
    if x.dtype == np.bool_:
        message = f"x is {x}, and NumPy does not subtract bools; convert it to an integer or floating-point type"
        raise checks.operand("x", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    _check_spacing(spacing, x, named, may_be_coordinates=True)
    for axis in named:
        if x.shape[axis] < edge_order + 1:
            message = f"axis {axis} of x has {x.shape[axis]} elements; edge_order={edge_order} needs {edge_order + 1}"
            raise checks.operand("x", message)
    result = ArrayType(x.shape, _inexact_type(x.dtype))
    return Signature(GradientParameters(named, edge_order), (result,) * len(named))


def _laplacian(operands: OperandTypes, parameters: ParameterValues) -> Signature[LaplacianParameters]:
    x, *spacing = map(required, operands)
    axes = _named_axes(parameters, "axes", x)
    boundary = cast(Boundary, checks.one_of(parameters, "boundary", BOUNDARIES))
    if x.dtype == np.bool_:
        message = f"x is {x}, and bool has no differences to add up; convert it to an integer or floating-point type"
        raise checks.operand("x", message, Reason.UNSUPPORTED_ELEMENT_TYPE)
    axes = tuple(sorted(axes)) if len(spacing) < 2 else axes
    _check_spacing(spacing, x, axes, may_be_coordinates=False)
    dtype = _inexact_type(x.dtype) if spacing else x.dtype
    return Signature(LaplacianParameters(axes, boundary), (ArrayType(x.shape, dtype),))


def _inexact_type(dtype: DType) -> DType:
    """Returns the type of a derivative, as `np.gradient`: inexact types stay, others become float64."""
    return dtype if is_inexact(dtype) else np.dtype(np.float64)


def _named_axes(parameters: ParameterValues, name: str, x: ArrayType) -> tuple[int, ...]:
    named = checks.axes(parameters, name, x.ndim)
    _check_axes(x)
    if not named:
        raise CallError(Reason.INVALID_PARAMETER, f"{name}=() names no axis; name one or more", field=name)
    return named


def _check_axes(x: ArrayType) -> None:
    if not x.ndim:
        raise checks.operand("x", f"x is {x}, a scalar; give an array of one axis or more")


def _check_spacing(
    spacing: Sequence[ArrayType], x: ArrayType, named: Sequence[int], *, may_be_coordinates: bool
) -> None:
    """Checks that there is no spacing, one scalar for all axes, or one scalar or row of coordinates for each."""
    one_for_all = len(spacing) == 1 and not spacing[0].ndim
    if spacing and len(spacing) != len(named) and not one_for_all:
        message = (
            f"{len(spacing)} spacing{'s' if len(spacing) > 1 else ''} for {len(named)} axes; give none, "
            "one scalar, or one for each axis"
        )
        raise CallError(Reason.OPERAND_COUNT, message, field="spacing")
    for i, (step, axis) in enumerate(zip(spacing, named, strict=False)):
        field, size = f"spacing[{i}]", x.shape[axis]
        if step.dtype.kind == "c" or step.dtype == np.bool_:
            message = f"{field} is {step}; a spacing is of real numbers"
            raise checks.operand(field, message, Reason.UNSUPPORTED_ELEMENT_TYPE)
        if step.ndim and (step.shape != (size,) or not may_be_coordinates):
            allowed = f"a scalar or the {size} coordinates along axis {axis}" if may_be_coordinates else "a scalar"
            raise checks.operand(field, f"{field} has shape {shorten(str(step.shape))}; give {allowed}")


def _cumsum(operands: OperandTypes, parameters: ParameterValues) -> Signature[CumSumParameters]:
    x = required(operands[0])
    dtype = _type_of_sums(x, parameters)
    if parameters["axis"] is None and x.ndim > 1:
        return Signature(CumSumParameters(None, dtype.name), (ArrayType((math.prod(x.shape),), dtype),))
    axis = 0 if parameters["axis"] is None else _axis_of_sums(x, checks.integer(parameters, "axis"))
    return Signature(CumSumParameters(axis, dtype.name), (ArrayType(x.shape or (1,), dtype),))


def _type_of_sums(x: ArrayType, parameters: ParameterValues) -> DType:
    if parameters["dtype"] is None:
        return np.cumsum(np.empty(0, x.dtype)).dtype
    dtype = checks.element_type(parameters, "dtype")
    if x.dtype.kind == "c" and dtype.kind != "c":
        message = (
            f"dtype={dtype.name!r} and x is {x.dtype.name}, whose imaginary part would be lost; "
            "give complex64 or complex128, or the real part of x"
        )
        raise CallError(Reason.UNSUPPORTED_ELEMENT_TYPE, message, field="dtype")
    return dtype


def _axis_of_sums(x: ArrayType, axis: int) -> int:
    ndim = max(x.ndim, 1)  # NumPy treats a scalar as an array of one element
    if not -ndim <= axis < ndim:
        raise CallError(
            Reason.AXIS_OUT_OF_RANGE,
            f"axis={axis} and x has {x.ndim} axes (shape {shorten(str(x.shape))}); "
            f"give an axis from {-ndim} to {ndim - 1}, or None to flatten x",
            field="axis",
            metadata={"axis": str(axis), "ndim": str(x.ndim)},
        )
    return axis % ndim


def returned_sums(rows: int, length: int, mode: str) -> tuple[int, int]:
    """Returns the first sum of a full convolution that a mode returns, and their number.

    NumPy's, in which the longer of the array's rows and the window counts as the array.
    """
    short, long = min(rows, length), max(rows, length)
    by_mode: Mapping[str, tuple[int, int]] = {
        "full": (0, rows + length - 1),
        "same": ((short - 1) // 2, long),
        "valid": (short - 1, long - short + 1),
    }
    return by_mode[mode]


def _convolve(operands: OperandTypes, parameters: ParameterValues) -> Signature[ConvolveParameters]:
    x, v = map(required, operands)
    mode, axis = _mode(parameters), checks.axis_of(x, checks.integer(parameters, "axis"), "convolve")
    if v.ndim != 1:
        raise checks.operand("v", f"v has shape {shorten(str(v.shape))}; give an array of one axis")
    for name, size in (("x", x.shape[axis]), ("v", v.shape[0])):
        if not size:
            message = f"{name} is empty along the axis of the convolution; give at least one element"
            raise checks.operand(name, message, Reason.INVALID_SHAPE)
    dtype = checks.common_type(("x", "v"), (x, v))
    _, count = returned_sums(x.shape[axis], v.shape[0], mode)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    return Signature(ConvolveParameters(mode, axis), (ArrayType(shape, dtype),))


def _mode(parameters: ParameterValues) -> str:
    """Returns the mode of a convolution, which may be one of NumPy's numbers."""
    value = parameters["mode"]
    if isinstance(value, int) and not isinstance(value, bool):
        if value in range(len(CONVOLVE_MODES)):
            return CONVOLVE_MODES[value]
        raise checks.invalid("mode", value, f"give 0, 1 or 2, or one of {', '.join(reversed(CONVOLVE_MODES))}")
    mode = checks.text(parameters, "mode")
    if mode not in CONVOLVE_MODES:
        message = f"mode={shorten(mode)!r} is no mode of convolve; {did_you_mean(mode, CONVOLVE_MODES)}"
        raise CallError(Reason.INVALID_PARAMETER, message, field="mode")
    return mode
