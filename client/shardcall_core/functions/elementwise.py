"""Functions that act element by element, with NumPy's broadcasting and element types."""

from __future__ import annotations

from collections.abc import Iterator

from shardcall_core.call_error import Reason, shorten
from shardcall_core.functions import checks, shape_rules, type_rules
from shardcall_core.functions.function import Check, Function
from shardcall_core.functions.signature import Method, OperandInfo, ParameterValues, Signature
from shardcall_core.functions.type_rules import Loop
from shardcall_core.layouts.layout import ArrayType, OperandTypes

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

_ANY = "An array or a scalar."
_NOTES = {
    "where": "A Python number takes the element type that ``numpy.add`` gives it beside the other operand. Beside "
    "bfloat16 a float becomes float32; in ``numpy.where``, float64.",
    "clip": "Python numbers take the element type of x; an integer beyond its range does not bound the result.",
}
_EXAMPLES = {
    "arccosh": "[1.5, 2.0]",
    "invert": "[1, 2]",
    "where": "[True, False, True], np.arange(3), 0",
    "clip": "np.arange(6), 1, 4",
}
_NOTE_OF_UNARY = "Floats narrower than float32 are computed in float32."
_NOTE_OF_BINARY = "A Python number takes the element type of the array beside it."
_ERRORS = {"power": ("InvalidOperandError: for integers to negative integer powers, as NumPy's ValueError.",)}
_OF_OPERANDS = "that of the largest operand, the first of equals; of axes that it does not have, that of the next"
_OF_OTHERS = "its own on the mesh, else that of the other operands, else the first axis, over all mesh axes"


def rows() -> Iterator[Function]:
    """Yields the functions."""
    x = OperandInfo("x", _ANY, spec="spec")
    y = OperandInfo("y", "An array or a scalar that broadcasts with x.", spec="y_spec")
    for name in UNARY:
        yield _elementwise(name, x)
    for name in BINARY:
        yield _elementwise(name, x, y)
    condition = OperandInfo("condition", "Where it is true or not zero, the result is x, elsewhere y.", spec="spec")
    first = OperandInfo("x", "An array or a scalar that broadcasts with condition.", spec="x_spec")
    yield _elementwise("where", condition, first, OperandInfo("y", "Likewise.", spec="y_spec"))
    low = "The least value of the result, an array or a scalar; left out, there is none."
    high = "The greatest value, likewise; where min is greater than max, the result is max."
    bounds = OperandInfo("min", low, True, spec="min_spec"), OperandInfo("max", high, True, spec="max_spec")
    yield _elementwise("clip", x, *bounds)


def _elementwise(name: str, *operands: OperandInfo) -> Function:
    names = tuple(operand.name for operand in operands)
    note = _NOTES.get(name, _NOTE_OF_BINARY if len(operands) > 1 else _NOTE_OF_UNARY)
    return Function(
        name,
        operands,
        check=_check(name, names),
        result_spec=_OF_OPERANDS,
        operand_spec=_OF_OTHERS if len(operands) > 1 else Function.operand_spec,
        summary=f"{name}({', '.join(names)}), element by element, as numpy.{name}.",
        method=Method(", ".join(names), note, _ERRORS.get(name, ())),
        example=_EXAMPLES.get(name, "[6, 7], [2, 3]" if len(operands) > 1 else "[0.25, 0.5]"),
    )


def _check(name: str, names: tuple[str, ...]) -> Check:
    def check(operands: OperandTypes, _: ParameterValues) -> Signature[None]:
        dtype = loop_of(name, operands).result
        return Signature(None, (ArrayType(broadcast_shape(names, operands), dtype),))

    return check


def loop_of(name: str, operands: OperandTypes) -> Loop:
    """Returns the types that a function is computed in.

    Args:
        name: of the function.
        operands: the types of its operands.

    Raises:
        CallError: NumPy takes no operands of these types.
    """
    try:
        return type_rules.loop(name, *(None if operand is None else operand.dtype for operand in operands))
    except TypeError:
        types = " and ".join(operand.dtype.name for operand in operands if operand is not None)
        message = (
            f"numpy.{name} does not take {types}, nor is there a type that it takes to which "
            "they convert safely; convert the operands to another type"
        )
        field = "condition" if name == "where" else "x"
        raise checks.operand(field, message, Reason.UNSUPPORTED_ELEMENT_TYPE) from None


def broadcast_shape(names: tuple[str, ...], operands: OperandTypes) -> tuple[int, ...]:
    """Returns the shape to which operands broadcast.

    Raises:
        CallError: there is none.
    """
    shape: tuple[int, ...] = ()
    for name, operand in zip(names, operands, strict=True):
        if operand is None:
            continue
        try:
            (shape,) = shape_rules.broadcast((shape, operand.shape), {})
        except ValueError:
            message = (
                f"{name} has shape {shorten(str(operand.shape))} and the operands before it "
                f"{shorten(str(shape))}; counted from the last, axes must be of one size, or of size 1"
            )
            raise checks.operand(name, message) from None
    return shape
