"""Elementwise functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Unpack, cast, overload

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import clip_operands, typed
from shardcall.methods.calling import ArrayOptions, Calling
from shardcall.methods.kernel_method import Item, Kept_co, Outcome, Outcome_co, Submitted, kernel_method
from shardcall_core.types.specs import SpecLike

if TYPE_CHECKING:
    from shardcall.methods.kernel_method import Awaitable, Computed, HereResult, KeptResult
    from shardcall_core.types.arrays import NDArray


class BinaryOptions(ArrayOptions, total=False):
    """The keywords of functions of two operands.

    Attributes:
        spec: the sharding of ``x``; None for that of ``y``, else by the first axis of the result, over all mesh axes.
        y_spec: the sharding of ``y``; None for its own on the mesh, else that of ``x``.
    """

    y_spec: SpecLike | None


class WhereOptions(BinaryOptions, total=False):
    """The keywords of `Elementwise.where`; ``spec`` is that of the condition.

    Attributes:
        x_spec: the sharding of ``x``; None for its own on the mesh, else that of the condition.
    """

    x_spec: SpecLike | None


class ClipOptions(ArrayOptions, total=False):
    """The keywords of `Elementwise.clip`.

    Attributes:
        min_spec: the sharding of ``min``; None for its own on the mesh, else that of ``x``.
        max_spec: the sharding of ``max``; None for its own on the mesh, else that of ``x``.
    """

    min_spec: SpecLike | None
    max_spec: SpecLike | None


class _UnaryCall(Protocol[Outcome_co, Kept_co]):
    @overload
    def __call__(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome_co: ...
    @overload
    def __call__(self, x: OperandLike, *, keep: Literal[True], **options: Any) -> Kept_co: ...
    @overload
    def __call__(self, x: OperandLike, *, keep: bool, **options: Any) -> Outcome_co | Kept_co: ...


class _BinaryCall(Protocol[Outcome_co, Kept_co]):
    @overload
    def __call__(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome_co: ...
    @overload
    def __call__(self, x: OperandLike, y: OperandLike, *, keep: Literal[True], **options: Any) -> Kept_co: ...
    @overload
    def __call__(self, x: OperandLike, y: OperandLike, *, keep: bool, **options: Any) -> Outcome_co | Kept_co: ...


class _Unary(Protocol):
    @overload
    def __get__(self, instance: None, owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: Calling[Submitted], owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: Calling[Computed], owner: Any) -> _UnaryCall[HereResult, KeptResult]: ...
    @overload
    def __get__(
        self, instance: Calling[Awaitable[Item]], owner: Any
    ) -> _UnaryCall[Awaitable[NDArray], Awaitable[Item]]: ...


class _Binary(Protocol):
    @overload
    def __get__(self, instance: None, owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: Calling[Submitted], owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: Calling[Computed], owner: Any) -> _BinaryCall[HereResult, KeptResult]: ...
    @overload
    def __get__(
        self, instance: Calling[Awaitable[Item]], owner: Any
    ) -> _BinaryCall[Awaitable[NDArray], Awaitable[Item]]: ...


def _unary(name: str) -> _Unary:
    def method(self: Calling[Outcome], x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        return self._named(name, x, options=options)

    method.__name__, method.__qualname__ = name, f"Elementwise.{name}"
    method.__doc__ = f"Returns ``numpy.{name}`` of each element; floats narrower than float32 are computed in float32."
    return cast(_Unary, method)


def _binary(name: str, note: str = "") -> _Binary:
    def method(self: Calling[Outcome], x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome:
        return self._named(name, *typed(name, (x, y)), options=options)

    method.__name__, method.__qualname__ = name, f"Elementwise.{name}"
    method.__doc__ = f"Returns ``numpy.{name}`` of each pair of elements, with NumPy's broadcasting.{note}"
    return cast(_Binary, method)


_POWER = """

Raises:
    InvalidOperandError: for integers to negative integer powers, as NumPy's ValueError."""


class Elementwise(Calling[Outcome]):
    """Elementwise functions, with NumPy's broadcasting and element types."""

    _ARGUMENTS: ClassVar[Mapping[str, str]] = {
        "x": "an array or a scalar; beside ``y``, a Python number takes y's element type, as in NumPy.",
        "y": "an array or a scalar that broadcasts with ``x``; a Python number takes x's element type.",
    }

    sin: _Unary = _unary("sin")
    cos: _Unary = _unary("cos")
    tan: _Unary = _unary("tan")
    arcsin: _Unary = _unary("arcsin")
    arccos: _Unary = _unary("arccos")
    arctan: _Unary = _unary("arctan")
    sinh: _Unary = _unary("sinh")
    cosh: _Unary = _unary("cosh")
    tanh: _Unary = _unary("tanh")
    arcsinh: _Unary = _unary("arcsinh")
    arccosh: _Unary = _unary("arccosh")
    arctanh: _Unary = _unary("arctanh")
    degrees: _Unary = _unary("degrees")
    radians: _Unary = _unary("radians")
    exp: _Unary = _unary("exp")
    exp2: _Unary = _unary("exp2")
    expm1: _Unary = _unary("expm1")
    log: _Unary = _unary("log")
    log2: _Unary = _unary("log2")
    log10: _Unary = _unary("log10")
    log1p: _Unary = _unary("log1p")
    sqrt: _Unary = _unary("sqrt")
    cbrt: _Unary = _unary("cbrt")
    square: _Unary = _unary("square")
    reciprocal: _Unary = _unary("reciprocal")
    absolute: _Unary = _unary("absolute")
    abs: _Unary = _unary("abs")
    negative: _Unary = _unary("negative")
    positive: _Unary = _unary("positive")
    sign: _Unary = _unary("sign")
    floor: _Unary = _unary("floor")
    ceil: _Unary = _unary("ceil")
    trunc: _Unary = _unary("trunc")
    rint: _Unary = _unary("rint")
    conjugate: _Unary = _unary("conjugate")
    real: _Unary = _unary("real")
    imag: _Unary = _unary("imag")
    angle: _Unary = _unary("angle")
    isnan: _Unary = _unary("isnan")
    isinf: _Unary = _unary("isinf")
    isfinite: _Unary = _unary("isfinite")
    signbit: _Unary = _unary("signbit")
    logical_not: _Unary = _unary("logical_not")
    invert: _Unary = _unary("invert")
    add: _Binary = _binary("add")
    subtract: _Binary = _binary("subtract")
    multiply: _Binary = _binary("multiply")
    divide: _Binary = _binary("divide")
    true_divide: _Binary = _binary("true_divide")
    floor_divide: _Binary = _binary("floor_divide")
    remainder: _Binary = _binary("remainder")
    mod: _Binary = _binary("mod")
    fmod: _Binary = _binary("fmod")
    power: _Binary = _binary("power", _POWER)
    float_power: _Binary = _binary("float_power")
    arctan2: _Binary = _binary("arctan2")
    hypot: _Binary = _binary("hypot")
    logaddexp: _Binary = _binary("logaddexp")
    logaddexp2: _Binary = _binary("logaddexp2")
    copysign: _Binary = _binary("copysign")
    maximum: _Binary = _binary("maximum")
    minimum: _Binary = _binary("minimum")
    fmax: _Binary = _binary("fmax")
    fmin: _Binary = _binary("fmin")
    equal: _Binary = _binary("equal")
    not_equal: _Binary = _binary("not_equal")
    less: _Binary = _binary("less")
    less_equal: _Binary = _binary("less_equal")
    greater: _Binary = _binary("greater")
    greater_equal: _Binary = _binary("greater_equal")
    logical_and: _Binary = _binary("logical_and")
    logical_or: _Binary = _binary("logical_or")
    logical_xor: _Binary = _binary("logical_xor")
    bitwise_and: _Binary = _binary("bitwise_and")
    bitwise_or: _Binary = _binary("bitwise_or")
    bitwise_xor: _Binary = _binary("bitwise_xor")
    left_shift: _Binary = _binary("left_shift")
    right_shift: _Binary = _binary("right_shift")
    gcd: _Binary = _binary("gcd")
    lcm: _Binary = _binary("lcm")

    @kernel_method
    def where(self, condition: OperandLike, x: OperandLike, y: OperandLike, **options: Unpack[WhereOptions]) -> Outcome:
        """Returns elements of x where the condition is true and of y elsewhere, as ``numpy.where``.

        Args:
            condition: an array or a scalar; any nonzero element is true.
            x: an array or a scalar that broadcasts with the condition; a Python number takes the element type that
                ``numpy.add`` gives it beside ``y``. Beside bfloat16 a float becomes float32; in ``numpy.where``,
                float64.
            y: an array or a scalar that broadcasts with both; a Python number is treated as for ``x``.
            options: see `WhereOptions`.
        """
        return self._named("where", condition, *typed("where", (x, y)), options=options)

    @kernel_method
    def clip(
        self,
        x: OperandLike,
        min: OperandLike | None = None,  # noqa: A002  # NumPy's names
        max: OperandLike | None = None,  # noqa: A002
        **options: Unpack[ClipOptions],
    ) -> Outcome:
        """Returns x limited to the interval from ``min`` to ``max``, as ``numpy.clip``.

        Args:
            x: an array or a scalar.
            min: the lower bounds, an array or a scalar that broadcasts with ``x``; None for no lower bound. A Python
                number takes x's element type; an integer below the range of that type has no effect.
            max: the upper bounds, likewise; where ``min`` is greater, the result is ``max``.
            options: see `ClipOptions`.
        """
        return self._named("clip", *clip_operands(x, min, max), options=options)
