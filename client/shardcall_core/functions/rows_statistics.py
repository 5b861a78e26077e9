"""Running products, counts, and positions among sorted numbers in the table of functions."""

from __future__ import annotations

from collections.abc import Iterator

from shardcall_core.functions import statistics_rules as rules
from shardcall_core.functions.function import Function
from shardcall_core.functions.signature import REQUIRED, Method, OperandInfo, ParameterInfo

_X = OperandInfo("x", "The array, of any rank and element type.", spec="spec")


def rows() -> Iterator[Function]:
    """Yields the functions."""
    yield Function.by_rules(
        "cumprod",
        (_X,),
        (
            ParameterInfo(
                "axis",
                "Along which axis; negative axes count from the last. None: x is flattened.",
                None,
                "Axis | None",
            ),
            ParameterInfo(
                "dtype",
                "The element type of the products; None for that of x, or 64 bits for shorter integers.",
                None,
                "npt.DTypeLike | None",
            ),
        ),
        rules.products,
        rules.running,
        "that of ``x``",
        summary="The running product along an axis, as numpy.cumprod.",
        method=Method("x, axis, dtype"),
        example="np.arange(1, 6)",
    )
    yield Function.by_rules(
        "searchsorted",
        (
            OperandInfo("a", "The sorted array [...], replicated."),
            OperandInfo("v", "The numbers, an array or a scalar.", spec="spec"),
        ),
        (ParameterInfo("side", "The position among equal numbers: left or right of them.", "left", "str"),),
        rules.positions,
        rules.searchsorted,
        "that of ``v``",
        summary="The positions at which numbers keep a sorted array sorted, as numpy.searchsorted.",
        method=Method("a, v, side"),
        example="[1, 3, 5], [0, 3, 4]",
    )
    yield Function.by_rules(
        "bincount",
        (
            OperandInfo("x", "Integers [N]; those that are negative or too large are left out.", spec="spec"),
            OperandInfo("weights", "The weight of each integer [N].", optional=True),
        ),
        (ParameterInfo("length", "The number of counts: of the integers from 0 on.", REQUIRED),),
        rules.counts,
        rules.bincount,
        "replicated",
        summary="How often each integer occurs, or the sum of its weights, as numpy.bincount with a length.",
        example="np.array([0, 1, 1, 3]), length=4",
    )
    yield Function.by_rules(
        "interp",
        (
            OperandInfo("x", "Where to evaluate the function; an array or a scalar.", spec="spec"),
            OperandInfo("xp", "The coordinates [N] of the points, ascending, replicated."),
            OperandInfo("fp", "The values [N] at the points."),
            OperandInfo("left", "The value left of all points; the first one by default.", optional=True),
            OperandInfo("right", "The value right of all points; the last one by default.", optional=True),
        ),
        (),
        rules.interpolated,
        rules.interp,
        "that of ``x``",
        summary="The values of a function that is linear between points, as numpy.interp.",
        method=Method("x, xp, fp, left, right"),
        example="[0.5, 1.5], [0.0, 1.0, 2.0], [0.0, 10.0, 40.0]",
    )
