"""The elementwise functions and the reductions that have a method, by NumPy's names."""

from __future__ import annotations


def _names(line: str) -> tuple[str, ...]:
    return tuple(line.split())


UNARY = _names(
    "sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians "
    "exp exp2 expm1 log log2 log10 log1p sqrt cbrt square reciprocal absolute abs negative positive sign "
    "floor ceil trunc rint conjugate real imag angle isnan isinf isfinite signbit logical_not invert"
)
"""Those of one operand."""

COMPARISONS = _names("equal not_equal less less_equal greater greater_equal")
"""Those of two operands that compare them."""

BINARY = COMPARISONS + _names(
    "add subtract multiply divide true_divide floor_divide remainder mod fmod power float_power "
    "arctan2 hypot logaddexp logaddexp2 copysign maximum minimum fmax fmin "
    "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor left_shift right_shift"
)
"""Those of two operands."""

BEGUN = _names("sum prod max min")
"""Reductions over axes that may begin with a value."""

MASKED = BEGUN + _names("mean var std any all")
"""Reductions over axes of all elements, or of some."""
