"""Calls of arrays one axis of which is rounded up: with its padding where the result shows nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.bucketed_array import (
    Bucket,
    BucketedArray,
    bucket_size,
    with_padding,
    without_padding,
)
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall_core.element_types import DType
from shardcall_core.functions.elementwise import BINARY, UNARY
from shardcall_core.functions.reductions import WITH_WHERE
from shardcall_core.functions.type_rules import AVERAGES
from shardcall_core.types import arrays


def call_bucketed(xp: Any, name: str, operands: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    """Runs a call with bucketed operands.

    Args:
        xp: the namespace with the functions.
        name: the name of the kernel.
        operands: the operands, one or more of them a `BucketedArray`.
        arguments: the parameters and the options.

    Returns:
        A `BucketedArray` if the result has the axis and the padding stays, else a `RemoteArray`.
    """
    call = _BucketedCall(xp, name, tuple(operands), arguments)
    rule = _RULES.get(name)
    result = None if rule is None else rule(call)
    return call.run(*map(_exact, operands)) if result is None else result


def call_padded(xp: Any, name: str, operands: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    """Runs a call with the elements of masks among its operands, whose numbers differ, on their padding too.

    Args:
        xp: as of `call_bucketed`.
        name: the name of the kernel.
        operands: the operands.
        arguments: the parameters and the options.

    Returns:
        An array whose padding is cut when it is read; None if the call is to run without padding.
    """
    rule = _PADDED_RULES.get(name)
    arrays = [find_remote_array(operand) for operand in operands]
    if rule is None or any(x is not None and xp.traced(x) is not None for x in arrays):
        return None
    bucketed = [None if x is None else with_padding(x) for x in arrays]
    if all(array is None for array in bucketed):
        return None
    padded = tuple(x if array is None else array for x, array in zip(operands, bucketed, strict=True))
    result = rule(_BucketedCall(xp, name, padded, arguments))
    return without_padding(result) if isinstance(result, BucketedArray) else result


@dataclass(frozen=True)
class _BucketedCall:
    """A call, as of `call_bucketed`."""

    xp: Any
    name: str
    operands: tuple[Any, ...]
    arguments: Mapping[str, Any]

    def run(self, *operands: Any, **arguments: Any) -> Any:
        """Runs the call with other operands."""
        return self.xp.call(self.name, *operands, **{**self.arguments, **arguments})

    def mask(self, x: BucketedArray) -> Any:
        """Returns where an array has no padding: [size, 1, …], one 1 for each axis behind."""
        is_valid = self.xp.less(self.xp.arange(x.bucket.size), np.int64(x.bucket.length))
        return self.xp.reshape(is_valid, (-1, *[1] * (x.ndim - x.bucket.axis - 1)))

    def filled(self, x: BucketedArray, value: Any) -> Any:
        """Returns an array with a value in its padding."""
        if x.bucket.is_exact:
            return x.padded
        return self.xp.where(self.mask(x), x.padded, np.asarray(value, x.dtype))

    def filled_with_last(self, x: BucketedArray) -> Any:
        """Returns an array with its last elements in its padding."""
        last = self.xp.minimum(self.xp.arange(x.bucket.size), np.int64(x.bucket.length - 1))
        return self.xp.take(x.padded, last, axis=x.bucket.axis)

    def padded(self, x: Any, bucket: Bucket) -> Any:
        """Returns an array that is not bucketed with zeros as the padding of an axis."""
        widths = bucket.widths(len(_shape(x)))
        here = find_remote_array(x)
        return np.pad(np.asarray(x), widths) if here is None else self.xp.pad(here, widths)


Rule = Callable[[_BucketedCall], Any]
"""Returns the result of a call; None if it is to run without padding."""


def _exact(operand: Any) -> Any:
    return operand.__remote_array__() if isinstance(operand, BucketedArray) else operand


def _shape(operand: Any) -> tuple[int, ...]:
    return operand.shape if isinstance(operand, ArrayProperties) else arrays.type_of(np.asarray(operand)).shape


def _elementwise(call: _BucketedCall) -> Any:
    shapes = [() if operand is None else _shape(operand) for operand in call.operands]
    bucketed = [operand for operand in call.operands if isinstance(operand, BucketedArray)]
    try:
        result = np.broadcast_shapes(*shapes)
    except ValueError:
        return None  # the call without padding raises the error
    (bucket, *others) = {operand.bucket.at(operand.bucket.axis - operand.ndim) for operand in bucketed}
    axis, length = bucket.axis, bucket.length
    if others or result[axis] != length:
        return None

    def with_padding(operand: Any, shape: tuple[int, ...]) -> Any:
        if isinstance(operand, BucketedArray):
            # Integers to negative powers are refused, in the padding too.
            refuses = call.name == "power" and operand.dtype.kind in "iu"
            return call.filled(operand, 1) if refuses else operand.padded
        if len(shape) < -axis or shape[axis] != length:
            return operand
        return call.padded(operand, bucket.at(len(shape) + axis))

    operands = [None if x is None else with_padding(x, shape) for x, shape in zip(call.operands, shapes, strict=True)]
    return BucketedArray(call.run(*operands), bucket.at(len(result) + axis))


def _reduction(call: _BucketedCall) -> Any:
    x, *others = call.operands
    others_present = [other for other in others if other is not None]
    if not isinstance(x, BucketedArray) or any(map(_shape, others_present)) or not x.bucket.length:
        return None  # with a mask of the caller, and of no elements, which NumPy may refuse
    axes = _axes(call.arguments.get("axis"), x.ndim)
    if x.bucket.axis not in axes:
        before = 0 if call.arguments.get("keepdims") else sum(axis < x.bucket.axis for axis in axes)
        return BucketedArray(call.run(x.padded, *others), x.bucket.at(x.bucket.axis - before))
    if call.name in _EXTREMES:
        value = _end(x.dtype, highest=call.name.endswith("min"))
        if value is None or (call.name.startswith("arg") and call.arguments.get("axis") is None and x.bucket.axis):
            return None  # the index in the flattened array would count padding
        return call.run(call.filled(x, value), *others)
    if x.bucket.is_exact:
        return call.run(x.padded, *others)
    return call.run(x.padded, call.mask(x), *others[1:])


def _running(call: _BucketedCall) -> Any:
    (x,) = call.operands
    if call.arguments.get("axis") is None and x.ndim != 1:
        return None
    return BucketedArray(call.run(x.padded), x.bucket)


def _sort(call: _BucketedCall) -> Any:
    (x,) = call.operands
    axis = call.arguments.get("axis", -1)
    if axis is None:
        return None
    if axis % x.ndim != x.bucket.axis:
        return BucketedArray(call.run(x.padded), x.bucket)
    last = np.nan if x.dtype.kind == "f" else _end(x.dtype, highest=True)
    return None if last is None else BucketedArray(call.run(call.filled(x, last)), x.bucket)


def _like_x(call: _BucketedCall) -> Any:
    (x,) = call.operands
    return BucketedArray(call.run(x.padded), x.bucket)


def _transpose(call: _BucketedCall) -> Any:
    (x,) = call.operands
    axes = call.arguments.get("axes")
    axes = [*range(x.ndim)][::-1] if axes is None else _axes(axes, x.ndim)
    if x.bucket.axis not in axes:
        return None
    return BucketedArray(call.run(x.padded), x.bucket.at([*axes].index(x.bucket.axis)))


def _getitem(call: _BucketedCall) -> Any:
    x, starts = call.operands
    sizes, steps, dropped, inserted = (call.arguments[name] for name in ("sizes", "steps", "dropped", "inserted"))
    axis, size = x.bucket.axis, sizes[x.bucket.axis]
    if axis in dropped:
        return call.run(x.padded, starts)
    if steps[axis] != 1 or not size:
        return None
    padded, requested = x.padded, bucket_size(size)
    if starts[axis] + requested > padded.shape[axis]:
        widths = [(0, requested if i == axis else 0) for i in range(x.ndim)]
        padded = call.xp.pad(padded, widths)
    result = call.run(padded, starts, sizes=(*sizes[:axis], requested, *sizes[axis + 1 :]))
    kept = [i for i in range(result.ndim) if i not in inserted]
    return BucketedArray(result, Bucket.of(kept[axis - sum(axis_dropped < axis for axis_dropped in dropped)], size))


def _setitem(call: _BucketedCall) -> Any:
    x, values, starts = call.operands
    if not isinstance(x, BucketedArray):
        return None
    return BucketedArray(call.run(x.padded, _exact(values), starts), x.bucket)


def _matmul(call: _BucketedCall) -> Any:
    lhs, rhs = call.operands
    if call.arguments.get("transpose_lhs") or call.arguments.get("transpose_rhs"):
        return None
    ndims = len(_shape(lhs)), len(_shape(rhs))
    summed = -1, -1 if ndims[1] == 1 else -2
    axes = [x.bucket.axis - x.ndim if isinstance(x, BucketedArray) else None for x in (lhs, rhs)]
    if not all(ndims) or (all(axis is not None for axis in axes) and tuple(axes) != summed):
        return None
    if summed[0] == axes[0] or summed[1] == axes[1]:
        lengths = [_shape(x)[axis] for x, axis in zip((lhs, rhs), summed, strict=True)]
        if len(set(lengths)) > 1:
            return None
        sizes = {x.bucket.size for x in (lhs, rhs) if isinstance(x, BucketedArray)}
        if len(sizes) > 1:
            return None
        buckets = [Bucket(ndim + axis, lengths[0], *sizes) for ndim, axis in zip(ndims, summed, strict=True)]
        pairs = zip((lhs, rhs), buckets, strict=True)
        return call.run(*(call.filled(x, 0) if isinstance(x, BucketedArray) else call.padded(x, b) for x, b in pairs))
    if axes == [-2, None]:
        result, axis = call.run(lhs.padded, rhs), -1 if ndims[1] == 1 else -2
        return BucketedArray(result, lhs.bucket.at(result.ndim + axis))
    if axes == [None, -1]:
        result = call.run(lhs, rhs.padded)
        return BucketedArray(result, rhs.bucket.at(result.ndim - 1))
    return None


def _concatenate(call: _BucketedCall) -> Any:
    first, *others = call.operands
    axis = call.arguments.get("axis", 0)
    if not isinstance(first, BucketedArray) or axis is None or axis % first.ndim != first.bucket.axis:
        return None
    axis, shapes = first.bucket.axis, [_shape(other) for other in others]
    alike = all(len(shape) == first.ndim for shape in shapes)
    if not alike or any(shape[:axis] + shape[axis + 1 :] != _without(first.shape, axis) for shape in shapes):
        return None
    if any(
        (other if isinstance(other, ArrayProperties) else np.asarray(other)).dtype != first.dtype for other in others
    ):
        return None
    result, end = first.padded, first.bucket.length
    bucket = Bucket.of(axis, end + sum(shape[axis] for shape in shapes))
    if (more := bucket.size - result.shape[axis]) > 0:
        result = call.xp.pad(result, [(0, more if i == axis else 0) for i in range(first.ndim)])
    for other, shape in zip(others, shapes, strict=True):
        starts = np.asarray([end if i == axis else 0 for i in range(first.ndim)])
        if shape[axis]:
            result = call.xp.call("setitem", result, _exact(other), starts, sizes=shape, steps=(1,) * first.ndim)
        end += shape[axis]
    return BucketedArray(result, bucket)


def _exact_reduction(call: _BucketedCall) -> Any:
    """Sums are exact of integers alone: those of others depend on how elements are shared out among devices."""
    x, dtype = call.operands[0], call.arguments.get("dtype")
    is_of_integers = x.dtype.kind in "biu" and (dtype is None or np.dtype(dtype).kind in "biu")
    is_exact = is_of_integers or call.name in (*_EXTREMES, "any", "all")
    return _reduction(call) if is_exact and call.name not in AVERAGES else None


def _take(call: _BucketedCall) -> Any:
    x, indices = call.operands
    axis = call.arguments.get("axis")
    if isinstance(x, BucketedArray) or not indices.bucket.length or (axis is None and len(_shape(x)) != 1):
        return None
    axis = (axis or 0) % len(_shape(x))
    return BucketedArray(call.run(x, call.filled(indices, 0)), indices.bucket.at(axis + indices.bucket.axis))


def _put_at(call: _BucketedCall) -> Any:
    x, values, *indices = call.operands
    (bucket, *others) = {operand.bucket for operand in indices if isinstance(operand, BucketedArray)} or [None]
    if bucket is None or others or isinstance(x, BucketedArray) or call.arguments["mode"] not in ("set", "min", "max"):
        return None
    if any(_shape(index) not in ((), (bucket.length,)) for index in indices):
        return None
    behind = len(_shape(x)) - len(indices) - call.arguments["position"]  # axes of the result behind those elements
    if isinstance(values, BucketedArray):
        if values.bucket.at(values.ndim - 1 - values.bucket.axis) != bucket.at(behind):
            return None
        values = call.filled_with_last(values)
    elif len(_shape(values)) > behind:
        return None
    filled = (call.filled_with_last(x) if isinstance(x, BucketedArray) else x for x in indices)
    if any(_shape(index) and not isinstance(index, BucketedArray) for index in indices):
        return None
    return call.run(x, values, *filled)


def _flatnonzero(call: _BucketedCall) -> Any:
    (x,) = call.operands
    return call.run(call.filled(x, 0)) if x.ndim == 1 else None


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _axes(axes: Any, ndim: int) -> list[int]:
    every = range(ndim) if axes is None else axes if isinstance(axes, Sequence) else (axes,)
    return [int(axis) % ndim for axis in every]


def _end(dtype: DType, *, highest: bool) -> Any:
    """Returns the lowest or the highest value of an element type; None for types that have none."""
    if dtype.kind == "f" and dtype.isbuiltin:
        return np.inf if highest else -np.inf
    if dtype.kind == "b":
        return highest
    if dtype.kind in "iu" and dtype.isbuiltin:
        return np.iinfo(dtype).max if highest else np.iinfo(dtype).min
    return None


_EXTREMES = ("max", "min", "argmax", "argmin")
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*UNARY, *BINARY, "where", "clip"), _elementwise),
    **dict.fromkeys((*WITH_WHERE, "argmax", "argmin"), _reduction),
    **dict.fromkeys(("cumsum", "cumprod"), _running),
    **dict.fromkeys(("sort", "argsort"), _sort),
    **dict.fromkeys(("astype", "copy"), _like_x),
    "transpose": _transpose,
    "getitem": _getitem,
    "setitem": _setitem,
    "matmul": _matmul,
    "concatenate": _concatenate,
}
"""The rules of kernels; those without a rule run without padding."""

_PADDED_RULES: Mapping[str, Rule] = {
    **dict.fromkeys((*UNARY, *BINARY, "where", "clip"), _elementwise),
    **dict.fromkeys((*WITH_WHERE, "argmax", "argmin"), _exact_reduction),
    **dict.fromkeys(("astype", "copy"), _like_x),
    "sort": _sort,
    "take": _take,
    "put_at": _put_at,
    "flatnonzero": _flatnonzero,
}
"""The rules of kernels of which each result is the same, bit for bit, as without padding."""
