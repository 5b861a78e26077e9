"""Random arrays, generated on the mesh.

A seed gives the values of `jax.random` for its key, the same on every mesh. Without ``mesh`` and ``out_spec`` an array
is generated on one device.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, SupportsIndex, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods.kernel_method import ArrayOptions, KernelCaller, Options, Outcome, kernel_method
from shardcall_core.functions.element_types import DType
from shardcall_core.types.element_types import parse_dtype
from shardcall_core.types.errors import InvalidOperandError

Shape = SupportsIndex | Sequence[SupportsIndex]

_MAX = 2**64 - 1  # of an operand


P = ParamSpec("P")
R = TypeVar("R")


def _seeded(method: Callable[P, R]) -> Callable[P, R]:
    """Explains the arguments of a method to callers who give those of NumPy's generators."""

    @functools.wraps(method)
    def seeded(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return method(*args, **keywords)
        except TypeError as error:
            try:
                inspect.signature(method).bind(*args, **keywords)
            except TypeError as unfit:
                fault = unfit
            else:
                if "size" not in keywords:
                    raise
                fault = error
            name = method.__name__
            bounds = {"uniform": "low, high", "normal": "loc, scale"}.get(name, "low, high")
            raise TypeError(
                f"{name}: {fault}; give the seed and the shape first, as there is no generator with a state: "
                f"{name}(seed, shape, {bounds})"
            ) from None

    return seeded


@kernel_method
@_seeded
def uniform(
    self: KernelCaller[Outcome],
    seed: OperandLike,
    shape: Shape,
    low: OperandLike = 0.0,
    high: OperandLike = 1.0,
    dtype: npt.DTypeLike = np.float64,
    **options: Unpack[Options],
) -> Outcome:
    """Returns values uniform in [low, high), as ``numpy.random.Generator.uniform``.

    Args:
        seed: an integer.
        shape: the shape of the result; an integer for one axis.
        low: the lower bound.
        high: the upper bound; values just below it may be rounded to it, as in `jax.random`.
        dtype: a floating-point type of 16 bits or more.
        options: see `Options`.

    Raises:
        InvalidOperandError: if high is below low. Bounds on the mesh are not checked: values are between the two.
    """
    _check_order(low, high, shape, may_be_equal=True)
    return self._named("uniform", seed, low, high, shape=shape, dtype=parse_dtype(dtype).name, options=options)


@kernel_method
@_seeded
def normal(
    self: KernelCaller[Outcome],
    seed: OperandLike,
    shape: Shape,
    loc: OperandLike = 0.0,
    scale: OperandLike = 1.0,
    dtype: npt.DTypeLike = np.float64,
    **options: Unpack[Options],
) -> Outcome:
    """Returns normal values, as ``numpy.random.Generator.normal``.

    Args:
        seed: an integer.
        shape: the shape of the result; an integer for one axis.
        loc: the mean.
        scale: the standard deviation.
        dtype: a floating-point type of 16 bits or more, or a complex one.
        options: see `Options`.
    """
    return self._named("normal", seed, loc, scale, shape=shape, dtype=parse_dtype(dtype).name, options=options)


@kernel_method
@_seeded
def randint(
    self: KernelCaller[Outcome],
    seed: OperandLike,
    shape: Shape,
    low: OperandLike,
    high: OperandLike,
    dtype: npt.DTypeLike = np.int64,
    **options: Unpack[Options],
) -> Outcome:
    """Returns integers uniform in [low, high), as ``numpy.random.Generator.integers``.

    Args:
        seed: an integer.
        shape: the shape of the result; an integer for one axis.
        low: the least value, one of the type's.
        high: one more than the greatest value; at most one more than the type's greatest, but for uint64.
        dtype: an integer type of 8 bits or more.
        options: see `Options`.

    Raises:
        InvalidOperandError: if a bound is beyond the type, or high is not above low. A bound on the mesh is
            replaced by the nearest allowed one; where no value is left, all are ``low``.
    """
    parsed = parse_dtype(dtype)
    _check_order(low, high, shape, may_be_equal=False)
    if parsed.kind in "iu":
        _check_bound("low", low, parsed, 0)
        _check_bound("high", high, parsed, 1)
    return self._named("randint", seed, low, high, shape=shape, dtype=parsed.name, options=options)


@kernel_method
def permutation(
    self: KernelCaller[Outcome], seed: OperandLike, x: OperandLike, axis: int = 0, **options: Unpack[ArrayOptions]
) -> Outcome:
    """Returns the rows of an array in random order, as ``numpy.random.Generator.permutation``.

    Args:
        seed: an integer.
        x: [..., size, ...] the array.
        axis: the axis; negative axes count from the last.
        options: see `ArrayOptions`.
    """
    return self._named("permutation", seed, x, axis=axis, options=options)


def _check_order(low: OperandLike, high: OperandLike, shape: Shape, *, may_be_equal: bool) -> None:
    lower, upper = _scalar(low), _scalar(high)
    if not all(isinstance(bound, int | float | np.integer | np.floating) for bound in (lower, upper)):
        return
    if (upper < lower or (upper == lower and not may_be_equal)) and 0 not in (
        shape if isinstance(shape, Sequence) else (shape,)
    ):
        raise InvalidOperandError(
            f"low={lower} and high={upper}; give a high {'of at least' if may_be_equal else 'above'} low", field="high"
        )


def _scalar(bound: OperandLike) -> Any:
    return bound[()] if isinstance(bound, np.ndarray) and not bound.ndim else bound


def _check_bound(name: str, bound: OperandLike, dtype: DType, beyond: int) -> None:
    value = _scalar(bound)
    min_value, max_value = int(np.iinfo(dtype).min), min(int(np.iinfo(dtype).max) + beyond, _MAX)
    if isinstance(value, int | np.integer) and not min_value <= value <= max_value:
        wider = ", or a wider dtype" if dtype.itemsize < 8 else ""
        raise InvalidOperandError(
            f"{name}={value} and the values are {dtype.name}; give a {name} from {min_value} to {max_value}{wider}",
            field=name,
        )
