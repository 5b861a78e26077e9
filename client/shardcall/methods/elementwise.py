"""Elementwise functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack, cast, overload

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import clip_operands, typed
from shardcall.methods.kernel_method import (
    ArrayOptions,
    Item,
    Kept_co,
    KernelCaller,
    Outcome,
    Outcome_co,
    SubmittedArray,
    kernel_method,
)
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
    """The keywords of `where`; ``spec`` is that of the condition.

    Attributes:
        x_spec: the sharding of ``x``; None for its own on the mesh, else that of the condition.
    """

    x_spec: SpecLike | None


class ClipOptions(ArrayOptions, total=False):
    """The keywords of `clip`.

    Attributes:
        min_spec: the sharding of ``min``; None for its own on the mesh, else that of ``x``.
        max_spec: the sharding of ``max``; None for its own on the mesh, else that of ``x``.
    """

    min_spec: SpecLike | None
    max_spec: SpecLike | None


class _BoundUnaryMethod(Protocol[Outcome_co, Kept_co]):
    @overload
    def __call__(self, x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome_co: ...
    @overload
    def __call__(self, x: OperandLike, *, keep: Literal[True], **options: Any) -> Kept_co: ...
    @overload
    def __call__(self, x: OperandLike, *, keep: bool, **options: Any) -> Outcome_co | Kept_co: ...


class _BoundBinaryMethod(Protocol[Outcome_co, Kept_co]):
    @overload
    def __call__(self, x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]) -> Outcome_co: ...
    @overload
    def __call__(self, x: OperandLike, y: OperandLike, *, keep: Literal[True], **options: Any) -> Kept_co: ...
    @overload
    def __call__(self, x: OperandLike, y: OperandLike, *, keep: bool, **options: Any) -> Outcome_co | Kept_co: ...


class UnaryMethod(Protocol):
    """A method of one operand in a class."""

    @overload
    def __get__(self, instance: None, owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: KernelCaller[SubmittedArray], owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: KernelCaller[Computed], owner: Any) -> _BoundUnaryMethod[HereResult, KeptResult]: ...
    @overload
    def __get__(
        self, instance: KernelCaller[Awaitable[Item]], owner: Any
    ) -> _BoundUnaryMethod[Awaitable[NDArray], Awaitable[Item]]: ...


class BinaryMethod(Protocol):
    """A method of two operands in a class."""

    @overload
    def __get__(self, instance: None, owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: KernelCaller[SubmittedArray], owner: Any) -> Any: ...
    @overload
    def __get__(self, instance: KernelCaller[Computed], owner: Any) -> _BoundBinaryMethod[HereResult, KeptResult]: ...
    @overload
    def __get__(
        self, instance: KernelCaller[Awaitable[Item]], owner: Any
    ) -> _BoundBinaryMethod[Awaitable[NDArray], Awaitable[Item]]: ...


_X = "x: an array or a scalar; beside ``y``, a Python number takes y's element type, as in NumPy."
_RAISES = {
    "power": """
    Raises:
        InvalidOperandError: for integers to negative integer powers, as NumPy's ValueError.
    """
}


def unary(name: str) -> UnaryMethod:
    """Returns the method of a function of one operand."""

    def method(self: KernelCaller[Outcome], x: OperandLike, **options: Unpack[ArrayOptions]) -> Outcome:
        return self._named(name, x, options=options)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""Returns ``numpy.{name}`` of each element; floats narrower than float32 are computed in float32.

    Args:
        {_X}
        options: see `ArrayOptions`.
    """
    return cast(UnaryMethod, method)


def binary(name: str) -> BinaryMethod:
    """Returns the method of a function of two operands."""

    def method(
        self: KernelCaller[Outcome], x: OperandLike, y: OperandLike, **options: Unpack[BinaryOptions]
    ) -> Outcome:
        return self._named(name, *typed(name, (x, y)), options=options)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"""Returns ``numpy.{name}`` of each pair of elements, with NumPy's broadcasting.

    Args:
        {_X}
        y: an array or a scalar that broadcasts with ``x``; a Python number takes x's element type.
        options: see `BinaryOptions`.
    {_RAISES.get(name, "")}"""
    return cast(BinaryMethod, method)


@kernel_method
def where(
    self: KernelCaller[Outcome], condition: OperandLike, x: OperandLike, y: OperandLike, **options: Unpack[WhereOptions]
) -> Outcome:
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
    self: KernelCaller[Outcome],
    x: OperandLike,
    min: OperandLike | None = None,
    max: OperandLike | None = None,
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
