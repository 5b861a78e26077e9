"""Functions that act element by element."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, Unpack, cast, overload

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.types.specs import SpecLike
from shardcall.methods.calling import ArrayOptions, Calling, Outcome
from shardcall.methods.scalars import bounds, typed

_Result_co = TypeVar("_Result_co", covariant=True)


class BinaryOptions(ArrayOptions, total=False):
    """What functions of two operands take.

    Attributes:
        spec: how ``x`` is split; left out, as ``y`` is, else by the rows of the result, over all mesh axes.
        y_spec: how ``y`` is split; left out, as ``x`` is, as far as it has x's sizes.
    """

    y_spec: SpecLike | None


class WhereOptions(BinaryOptions, total=False):
    """What `where` takes: ``spec`` is the condition's.

    Attributes:
        x_spec: how ``x`` is split; left out, as the condition is.
    """

    x_spec: SpecLike | None


class ClipOptions(ArrayOptions, total=False):
    """What `clip` takes.

    Attributes:
        min_spec: how ``min`` is split; left out, as ``x`` is.
        max_spec: how ``max`` is split; likewise.
    """

    min_spec: SpecLike | None
    max_spec: SpecLike | None


class _UnaryCall(Protocol[_Result_co]):
    def __call__(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> _Result_co: ...


class _BinaryCall(Protocol[_Result_co]):
    def __call__(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> _Result_co: ...


class _Unary(Protocol):
    @overload
    def __get__(self, instance: None, owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: Calling[Outcome], owner: Any) -> _UnaryCall[Outcome]: ...


class _Binary(Protocol):
    @overload
    def __get__(self, instance: None, owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: Calling[Outcome], owner: Any) -> _BinaryCall[Outcome]: ...


def _unary(name: str) -> _Unary:
    def method(self: Calling[Outcome], x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        return self._named(name, x, options=options)

    method.__name__, method.__qualname__ = name, f"Elementwise.{name}"
    method.__doc__ = f"""``numpy.{name}``, element by element.

        Args:
            x: an array or a scalar.
            options: as of `shardcall.methods.calling.ArrayOptions`; the result is split as ``x`` unless told.
        """
    return cast(_Unary, method)


def _binary(name: str, note: str = "") -> _Binary:
    def method(self: Calling[Outcome], x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        return self._named(name, *typed(name, (x, y)), options=options)

    method.__name__, method.__qualname__ = name, f"Elementwise.{name}"
    method.__doc__ = f"""``numpy.{name}``, element by element.

        Args:
            x: an array or a scalar; a Python number takes y's element type, as in NumPy.
            y: one that broadcasts with ``x``; likewise.
            options: as of `shardcall.methods.elementwise.BinaryOptions`; the result is split as the first operand of
                its shape unless told.
        """
    if note:
        method.__doc__ = method.__doc__.replace("\n\n", f"\n\n        {note}\n\n", 1)
    return cast(_Binary, method)


_POWER = "Integers to negative integer powers are refused, as in NumPy: `shardcall.InvalidOperandError`, a ValueError."


class Elementwise(Calling[Outcome]):
    """Functions that act element by element, with NumPy's broadcasting and element types."""

    sin = _unary("sin")
    cos = _unary("cos")
    tan = _unary("tan")
    arcsin = _unary("arcsin")
    arccos = _unary("arccos")
    arctan = _unary("arctan")
    sinh = _unary("sinh")
    cosh = _unary("cosh")
    tanh = _unary("tanh")
    arcsinh = _unary("arcsinh")
    arccosh = _unary("arccosh")
    arctanh = _unary("arctanh")
    degrees = _unary("degrees")
    radians = _unary("radians")
    exp = _unary("exp")
    exp2 = _unary("exp2")
    expm1 = _unary("expm1")
    log = _unary("log")
    log2 = _unary("log2")
    log10 = _unary("log10")
    log1p = _unary("log1p")
    sqrt = _unary("sqrt")
    cbrt = _unary("cbrt")
    square = _unary("square")
    reciprocal = _unary("reciprocal")
    absolute = _unary("absolute")
    abs = _unary("abs")
    negative = _unary("negative")
    positive = _unary("positive")
    sign = _unary("sign")
    floor = _unary("floor")
    ceil = _unary("ceil")
    trunc = _unary("trunc")
    rint = _unary("rint")
    conjugate = _unary("conjugate")
    real = _unary("real")
    imag = _unary("imag")
    angle = _unary("angle")
    isnan = _unary("isnan")
    isinf = _unary("isinf")
    isfinite = _unary("isfinite")
    signbit = _unary("signbit")
    logical_not = _unary("logical_not")
    invert = _unary("invert")
    add = _binary("add")
    subtract = _binary("subtract")
    multiply = _binary("multiply")
    divide = _binary("divide")
    true_divide = _binary("true_divide")
    floor_divide = _binary("floor_divide")
    remainder = _binary("remainder")
    mod = _binary("mod")
    fmod = _binary("fmod")
    power = _binary("power", _POWER)
    float_power = _binary("float_power")
    arctan2 = _binary("arctan2")
    hypot = _binary("hypot")
    logaddexp = _binary("logaddexp")
    logaddexp2 = _binary("logaddexp2")
    copysign = _binary("copysign")
    maximum = _binary("maximum")
    minimum = _binary("minimum")
    fmax = _binary("fmax")
    fmin = _binary("fmin")
    equal = _binary("equal")
    not_equal = _binary("not_equal")
    less = _binary("less")
    less_equal = _binary("less_equal")
    greater = _binary("greater")
    greater_equal = _binary("greater_equal")
    logical_and = _binary("logical_and")
    logical_or = _binary("logical_or")
    logical_xor = _binary("logical_xor")
    bitwise_and = _binary("bitwise_and")
    bitwise_or = _binary("bitwise_or")
    bitwise_xor = _binary("bitwise_xor")
    left_shift = _binary("left_shift")
    right_shift = _binary("right_shift")

    def where(self, condition: OperandLike, x: OperandLike, y: OperandLike, **options: Unpack[WhereOptions]) -> Outcome:
        """``numpy.where``: x where the condition is true, y elsewhere.

        Args:
            condition: an array or a scalar; what is not 0 is true.
            x: one that broadcasts with it; a Python number takes the element type that ``numpy.add`` gives it beside y,
                y's own where that holds numbers of its kind. A float beside bfloat16 is a float32 so, and a float64 in
                ``numpy.where``.
            y: likewise.
            options: as of `shardcall.methods.elementwise.WhereOptions`; the result is split as the first operand of its
                shape unless told.
        """
        return self._named("where", condition, *typed("where", (x, y)), options=options)

    def clip(
        self,
        x: OperandLike,
        min: OperandLike | None = None,  # noqa: A002  # NumPy's names
        max: OperandLike | None = None,  # noqa: A002
        **options: Unpack[ClipOptions],
    ) -> Outcome:
        """``numpy.clip``: x, but no less than ``min`` and no more than ``max``.

        Args:
            x: an array or a scalar.
            min: one that broadcasts with it, or None; a Python number takes x's element type, as in NumPy, and an
                integer below all that it holds counts for nothing.
            max: likewise; where ``min`` is greater, it is the result.
            options: as of `shardcall.methods.elementwise.ClipOptions`; the result is split as ``x`` unless told.
        """
        return self._named("clip", *typed("clip", (x, *bounds(x, min, max))), options=options)
