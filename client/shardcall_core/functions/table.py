"""The functions that have a method: their signatures, NumPy's rules for their results, and the results' sharding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

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
from shardcall_core.functions.signature import REQUIRED, Method, OperandInfo, ParameterInfo

_X = OperandInfo("x", "The array, of any rank and element type.", spec="spec")

_STARTS = OperandInfo(
    "starts", "[n] integers: the first index of each axis; clamped to those from which all elements exist."
)
_SIZES = ParameterInfo("sizes", "The number of elements along each axis of x.", REQUIRED)
_STEPS = ParameterInfo("steps", "The steps between them, other than 0; negative ones go towards the first.", REQUIRED)
_DROPPED = ParameterInfo("dropped", "The axes of x, of size 1 now, that the slice does not have.", ())
_INSERTED = ParameterInfo("inserted", "The axes of the slice that are new, of size 1.", ())
_ARRAYS = OperandInfo("arrays", "The arrays.", repeated=True)
_AXIS_OR_FLAT = ParameterInfo(
    "axis", "Along which axis; negative axes count from the last. None: x is flattened.", None, "Axis | None"
)
_K = ParameterInfo("k", "The diagonal: 0 for the main one, positive above it.", 0, "Axis")
_OFFSET = ParameterInfo("offset", "The diagonal: 0 for the main one, positive above it.", 0, "Axis")
_AXIS1 = ParameterInfo("axis1", "The axis of the rows.", 0, "Axis")
_AXIS2 = ParameterInfo("axis2", "The axis of the columns.", 1, "Axis")
_LAST_AXIS_OR_FLAT = ParameterInfo(
    "axis", "Along which axis; negative axes count from the last. None: x is flattened.", -1, "Axis | None"
)
_INDICES = OperandInfo(
    "indices", "Integers; negative ones count from the last element. An index out of range is refused."
)
_LAST_AXIS = ParameterInfo("axis", "Along which axis; negative axes count from the last.", -1, "Axis")
_FILL_VALUE = OperandInfo("fill_value", "[] the value, of the result's type.")
_START = OperandInfo("start", "[] the first element.")
_SIZE = ParameterInfo("size", "The number of elements.", REQUIRED)
_INDEX_ARRAYS = OperandInfo(
    "indices",
    "Integers that broadcast together; negative ones count from the end. An index out of range is refused.",
    repeated=True,
)
_AXES = ParameterInfo("axes", "The axis of x that each array of indices is for, ascending.", REQUIRED)
_POSITION = ParameterInfo("position", "The position of the indices' axes among the other axes of x, in x[indices].", 0)

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
    of_first = "that of the first array"
    formed = f"{kept}, and along the first other one that of the first axis of ``x`` that it does not keep"
    yield Function.by_rules(
        "getitem",
        (_X, _STARTS),
        (_SIZES, _STEPS, _DROPPED, _INSERTED),
        type_rules.getitem,
        rules.getitem,
        kept,
        summary="Slices of an array along its axes, whose starts are an operand, as x[a:b:c, i, None].",
        example="np.arange(12).reshape(3, 4), [0, 1], sizes=(2, 2), steps=(1, 1)",
    )
    yield Function.by_rules(
        "setitem",
        (
            _X,
            OperandInfo("values", "The values, which broadcast to the slice; converted to the type of x."),
            _STARTS,
        ),
        (_SIZES, _STEPS, _DROPPED, _INSERTED),
        type_rules.setitem,
        rules.setitem,
        _OF_X,
        summary="The array with values in a slice, as after x[a:b:c, i] = values.",
        example="np.zeros((3, 4)), 7.0, [0, 1], sizes=(2, 2), steps=(1, 1)",
    )
    yield Function.by_rules(
        "reshape",
        (_X,),
        (ParameterInfo("shape", "The shape; one size may be -1, which stands for what is left.", REQUIRED, "Axes"),),
        of_x,
        rules.reshape,
        formed,
        summary="The elements in an array of another shape, as numpy.reshape.",
        method=Method("x, shape"),
        example="np.arange(6), (2, -1)",
    )
    yield Function.by_rules(
        "expand_dims",
        (_X,),
        (ParameterInfo("axis", "The axes of the result that are new.", REQUIRED, "Axes"),),
        of_x,
        rules.expand_dims,
        kept,
        summary="The array with new axes of size 1, as numpy.expand_dims.",
        method=Method("x, axis"),
        example="np.arange(3), axis=0",
    )
    yield Function.by_rules(
        "squeeze",
        (_X,),
        (ParameterInfo("axis", "The axes to remove; None for all of size 1.", None, "Axes | None"),),
        of_x,
        rules.squeeze,
        kept,
        summary="The array without axes of size 1, as numpy.squeeze.",
        method=Method("x, axis"),
        example="np.ones((3, 1))",
    )
    yield Function.by_rules(
        "broadcast_to",
        (_X,),
        (ParameterInfo("shape", "The shape.", REQUIRED, "Axes"),),
        of_x,
        rules.broadcast_to,
        kept,
        summary="The array broadcast to a shape, as numpy.broadcast_to.",
        method=Method("x, shape", "The result is an array of its own."),
        example="np.arange(3), (2, 3)",
    )
    yield Function.by_rules(
        "flip",
        (_X,),
        (
            ParameterInfo(
                "axis", "Along which axis; negative axes count from the last. None: all.", None, "Axes | None"
            ),
        ),
        of_x,
        rules.flip,
        _OF_X,
        summary="The elements in reverse order along axes, as numpy.flip.",
        method=Method("x, axis"),
        example="np.arange(6).reshape(2, 3), axis=1",
    )
    yield Function.by_rules(
        "concatenate",
        (_ARRAYS,),
        (
            ParameterInfo(
                "axis",
                "Along which axis; negative axes count from the last. None: the arrays are flattened.",
                0,
                "Axis | None",
            ),
        ),
        type_rules.joined,
        rules.concatenate,
        of_first,
        summary="Arrays joined along an axis, as numpy.concatenate.",
        method=Method("arrays, axis"),
        example="[np.arange(3), np.arange(2)]",
    )
    yield Function.by_rules(
        "stack",
        (_ARRAYS,),
        (ParameterInfo("axis", "The axis of the result that is new.", 0, "Axis"),),
        type_rules.joined,
        rules.stack,
        of_first,
        summary="Arrays joined along a new axis, as numpy.stack.",
        method=Method("arrays, axis"),
        example="[np.arange(3), np.arange(3)], axis=1",
    )
    yield Function.by_rules(
        "astype",
        (_X,),
        (ParameterInfo("dtype", "The element type.", REQUIRED, "npt.DTypeLike"),),
        type_rules.astype,
        shape_rules.as_operand(0),
        _OF_X,
        summary="The array in another element type, as numpy.ndarray.astype.",
        method=Method("x, dtype", "Of complex numbers the real part is taken."),
        example="np.arange(3), 'float32'",
    )
    yield Function.by_rules(
        "tile",
        (_X,),
        (ParameterInfo("reps", "The number of copies along each axis.", REQUIRED, "Axes"),),
        of_x,
        rules.tile,
        _OF_X,
        summary="Copies of the array beside each other, as numpy.tile.",
        method=Method("x, reps"),
        example="np.arange(3), 2",
    )
    yield Function.by_rules(
        "repeat",
        (_X,),
        (
            ParameterInfo("repeats", "How often each row occurs.", REQUIRED, "SupportsIndex"),
            _AXIS_OR_FLAT,
        ),
        of_x,
        rules.repeat,
        _OF_X,
        summary="Each row several times, as numpy.repeat.",
        method=Method("x, repeats, axis"),
        example="np.arange(3), 2",
    )
    yield Function.by_rules(
        "tril",
        (_X,),
        (_K,),
        of_x,
        rules.triangle,
        _OF_X,
        summary="The elements on and below a diagonal, zeros elsewhere, as numpy.tril.",
        method=Method("x, k"),
        example="np.ones((3, 3))",
    )
    yield Function.by_rules(
        "triu",
        (_X,),
        (_K,),
        of_x,
        rules.triangle,
        _OF_X,
        summary="The elements on and above a diagonal, zeros elsewhere, as numpy.triu.",
        method=Method("x, k"),
        example="np.ones((3, 3)), k=1",
    )
    yield Function.by_rules(
        "diagonal",
        (_X,),
        (_OFFSET, _AXIS1, _AXIS2),
        of_x,
        rules.diagonal,
        kept,
        summary="The diagonals of matrices, as numpy.diagonal.",
        method=Method("x, offset, axis1, axis2", "The result is an array of its own."),
        example="np.arange(9).reshape(3, 3)",
    )
    yield Function.by_rules(
        "trace",
        (_X,),
        (
            _OFFSET,
            _AXIS1,
            _AXIS2,
            ParameterInfo(
                "dtype", "The element type of the sums; None for that of numpy.sum.", None, "npt.DTypeLike | None"
            ),
        ),
        type_rules.trace,
        rules.trace,
        kept,
        summary="The sums of the diagonals of matrices, as numpy.trace.",
        method=Method("x, offset, axis1, axis2, dtype"),
        example="np.arange(9).reshape(3, 3)",
    )
    yield Function.by_rules(
        "pad",
        (
            _X,
            OperandInfo(
                "constant_values",
                "[] the value of the new elements for the mode constant; 0 if left out.",
                optional=True,
            ),
        ),
        (
            ParameterInfo(
                "pad_width",
                "The rows before and behind: one number, one of each, or both for each axis; or a dict by axis.",
                REQUIRED,
                "Widths",
            ),
            ParameterInfo("mode", "The new elements: constant, edge, reflect, symmetric, wrap.", "constant", "str"),
        ),
        type_rules.pad,
        rules.pad,
        _OF_X,
        summary="The array with rows before and behind, as numpy.pad.",
        method=Method("x, pad_width, mode, constant_values"),
        example="np.arange(3), (1, 2), mode='edge'",
    )


def _along_axes() -> Iterator[Function]:
    yield Function.by_rules(
        "sort",
        (_X,),
        (_LAST_AXIS_OR_FLAT,),
        type_rules.as_operand(0),
        axis_rules.sort,
        _OF_X,
        summary="The elements in ascending order along an axis, NaN last, as numpy.sort.",
        method=Method("x, axis", "Equal elements keep their order."),
        example="np.array([3, 1, 2])",
    )
    yield Function.by_rules(
        "argsort",
        (_X,),
        (_LAST_AXIS_OR_FLAT,),
        type_rules.indices,
        axis_rules.sort,
        _OF_X,
        summary="The indices that sort an axis, as numpy.argsort with stable=True.",
        method=Method("x, axis"),
        example="np.array([3, 1, 2])",
    )
    kept = "that of ``x`` along the axes that it keeps"
    yield Function.by_rules(
        "take",
        (_X, _INDICES),
        (_AXIS_OR_FLAT,),
        type_rules.taken,
        axis_rules.take,
        kept,
        summary="The elements at indices along an axis, as numpy.take.",
        method=Method("x, indices, axis", errors=("IndexOutOfRangeError: for an index that there is not.",)),
        example="np.arange(6).reshape(2, 3), [2, 0], axis=1",
    )
    yield Function.by_rules(
        "take_along_axis",
        (_X, _INDICES),
        (_LAST_AXIS,),
        type_rules.taken,
        axis_rules.take_along_axis,
        kept,
        summary="The elements at indices along an axis, others for each row, as numpy.take_along_axis.",
        method=Method("x, indices, axis", errors=("IndexOutOfRangeError: for an index that there is not.",)),
        example="np.arange(6).reshape(2, 3), np.array([[2], [0]])",
    )
    spec = "that of ``x`` without its first axis"
    yield Function.by_rules(
        "lexsort",
        (OperandInfo("x", "The keys, along the first axis.", spec="spec"),),
        (ParameterInfo("axis", "Along which axis of a key; negative axes count from the last.", -1),),
        type_rules.indices,
        axis_rules.lexsort,
        spec,
        summary="The indices that sort an axis by several keys, of which the last counts most, as numpy.lexsort.",
        example="np.array([[0, 1, 0], [2, 1, 1]])",
    )


def _creations() -> Iterator[Function]:
    rules, rows = creation_rules, "its first axis, over all mesh axes"
    yield Function.by_rules(
        "full",
        (_FILL_VALUE,),
        (ParameterInfo("shape", "The shape of the result.", REQUIRED),),
        type_rules.as_operand(0),
        rules.full,
        rows,
        summary="An array with one value everywhere, as numpy.full.",
        example="7.0, shape=(2, 3)",
    )
    yield Function.by_rules(
        "full_like",
        (_X, _FILL_VALUE),
        (),
        type_rules.as_operand(1),
        rules.full_like,
        _OF_X,
        summary="An array of the shape of another with one value everywhere, as numpy.full_like.",
        example="np.zeros((2, 3)), 7.0",
    )
    yield Function.by_rules(
        "arange",
        (
            _START,
            OperandInfo("second", "[] the second element, of the type of start."),
        ),
        (_SIZE,),
        rules.arange_type,
        rules.sequence("start", "second"),
        rows,
        summary="Evenly spaced numbers, start + i (second - start), as numpy.arange fills an array.",
        example="0, 2, size=4",
    )
    yield Function.by_rules(
        "linspace",
        (
            _START,
            OperandInfo("step", "[] the distance of neighbours."),
            OperandInfo("last", "[] the last of two or more elements; left out: on the line.", optional=True),
        ),
        (_SIZE,),
        rules.linspace_type,
        rules.sequence("start", "step", "last"),
        rows,
        summary="Evenly spaced floats, start + i step, as numpy.linspace.",
        example="0.0, 0.25, 1.0, size=5",
    )
    yield Function.by_rules(
        "eye",
        (OperandInfo("k", "[] an integer: the diagonal, 0 for the main one, positive above it."),),
        (
            ParameterInfo("shape", "The number of rows and of columns.", REQUIRED),
            ParameterInfo("dtype", "The element type, by name.", "float64"),
        ),
        rules.eye_type,
        rules.eye,
        rows,
        summary="Ones on a diagonal and zeros elsewhere, as numpy.eye.",
        example="1, shape=(2, 3)",
    )


def _elements() -> Iterator[Function]:
    rules, spec = element_rules, "that of ``x`` along the axes that it keeps"
    yield Function.by_rules(
        "nextafter",
        (
            OperandInfo("x", "An array of floats.", spec="spec"),
            OperandInfo("y", "An array of floats that broadcasts with x.", spec="y_spec"),
        ),
        (),
        rules.nextafter_type,
        rules.broadcast,
        spec,
        summary="The next number from x towards y, as numpy.nextafter.",
        example="[0.0, 1.0], [1.0, 0.0]",
    )
    yield Function.by_rules(
        "complex",
        (
            OperandInfo("x", "The real parts, of float32 or float64.", spec="spec"),
            OperandInfo("y", "The imaginary parts, of the same type, which broadcast with x.", spec="y_spec"),
        ),
        (),
        rules.complex_type,
        rules.broadcast,
        spec,
        summary="Complex numbers of two parts, as jax.lax.complex.",
        example="[0.0, 1.0], [1.0, 0.0]",
    )


def _updates() -> Iterator[Function]:
    rules = update_rules
    kept = "that of ``x`` along the axes that it keeps"
    yield Function.by_rules(
        "take_at",
        (_X, _INDEX_ARRAYS),
        (_AXES, _POSITION),
        rules.take_at_type,
        rules.take_at,
        kept,
        summary="The elements at indices along several axes, as x[indices].",
        example="np.arange(6).reshape(2, 3), [1, 0], [2, 2], axes=(0, 1)",
    )
    yield Function.by_rules(
        "put_at",
        (
            _X,
            OperandInfo("values", "The operand of each update, which broadcasts to x[indices]; converted to x's type."),
            _INDEX_ARRAYS,
        ),
        (
            _AXES,
            _POSITION,
            ParameterInfo(
                "mode",
                "The update: set, add, multiply, min, max. Of equal indices the last is set; others add up.",
                "set",
            ),
        ),
        rules.put_at_type,
        rules.put_at,
        _OF_X,
        summary="The array with other elements at indices along some axes, as x[indices] = values and numpy.add.at.",
        example="np.zeros((2, 3)), 7.0, [1, 0], [2, 2], axes=(0, 1)",
    )
    yield Function.by_rules(
        "put_along_axis",
        (
            _X,
            OperandInfo("values", "The new elements, which broadcast to the indices; converted to x's type."),
            _INDICES,
        ),
        (_LAST_AXIS,),
        rules.put_along_axis_type,
        rules.put_along_axis,
        _OF_X,
        summary="The array with other elements at indices along an axis, as numpy.put_along_axis; of "
        "equal ones the last.",
        example="np.zeros((2, 3)), 7.0, [[2], [0]]",
    )
    spec = "that of the first axis of ``x``"
    yield Function.by_rules(
        "flatnonzero",
        (_X,),
        (
            ParameterInfo(
                "size",
                "The number of elements that are not zero; indices beyond it are left out, missing ones are 0.",
                REQUIRED,
            ),
        ),
        type_rules.indices,
        rules.flatnonzero,
        spec,
        summary="The indices of the elements of the flattened array that are not zero, as numpy.flatnonzero.",
        example="np.array([0, 3, 0, 5]), size=2",
    )


FUNCTIONS: Mapping[str, Function] = MappingProxyType({function.name: function for function in _functions()})
"""All functions, by name."""
