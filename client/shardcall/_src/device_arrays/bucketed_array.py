"""Arrays on the mesh with one axis rounded up, so that arrays of many lengths share programs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.array_protocols import ArrayProtocols
from shardcall._src.device_arrays.array_version import MAX_PADDED_BYTES
from shardcall._src.device_arrays.remote_array import SHORT_TIMEOUT_S, RemoteArray
from shardcall._src.device_arrays.write_locks import WriteLock
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import TracingError

_SIZES_PER_DOUBLING = 8
_MIN_CAPACITY = 64


def bucket_size(length: int) -> int:
    """Returns the smallest size that is at least a length, of eight sizes for each doubling."""
    below = 1 << max(length - 1, 1).bit_length() - 1  # the power of two that the length is above
    step = max(1, below // _SIZES_PER_DOUBLING)
    return -(-length // step) * step


def capacity(count: int, max_count: int, item_bytes: int) -> int:
    """Returns the number of elements that are computed where a number is found while a program runs.

    Args:
        count: the number; for 0 nothing is computed.
        max_count: the maximum of the number.
        item_bytes: the bytes of an element.

    Returns:
        A power of two that is at least 64, of many bytes one of eight sizes for each doubling, but not above the
        maximum.
    """
    doubled = max(_MIN_CAPACITY, 1 << max(count - 1, 0).bit_length())
    if doubled * item_bytes > MAX_PADDED_BYTES:
        doubled = bucket_size(count)
    return min(doubled, max_count) if count else 0


@dataclass(frozen=True)
class Bucket:
    """An axis that is rounded up.

    Attributes:
        axis: the axis, counted from the first.
        length: its logical size.
        size: its size with the padding.
    """

    axis: int
    length: int
    size: int

    @classmethod
    def of(cls, axis: int, length: int) -> Self:
        """Returns an axis of a length with the size that `bucket_size` gives it."""
        return cls(axis, length, bucket_size(length))

    @property
    def is_exact(self) -> bool:
        """True if it has no padding, nor has any other length that is rounded up to the size."""
        return self.size == self.length <= 2 * _SIZES_PER_DOUBLING

    def at(self, axis: int) -> Self:
        """Returns the same as another axis."""
        return replace(self, axis=axis)

    def widths(self, ndim: int) -> list[tuple[int, int]]:
        """Returns the widths of the padding at the end of the axis, as ``numpy.pad`` takes them."""
        return [(0, self.size - self.length if i == self.axis else 0) for i in range(ndim)]


class BucketedArray(ArrayProperties, ArrayProtocols):
    """An array on the mesh with one axis rounded up to one of eight sizes for each doubling.

    Made by `Client.bucket`. Its shape is the logical one: behind it is padding, whose values no result depends on.
    Calls of arrays with different lengths that are rounded up to one size share a compiled program.

    Elementwise functions, reductions, running sums, sorts, products of matrices, slices with steps of 1, transposes,
    and joins to its end run on the array with its padding; their results are bucketed where they have the axis. All
    other functions run on the array without its padding, which is cut for each length.

    Attributes:
        padded: the array with its padding.
        bucket: the axis that is rounded up.
    """

    def __init__(self, padded: RemoteArray, bucket: Bucket) -> None:
        self.padded: RemoteArray = padded
        self.bucket = bucket
        self._write_lock = WriteLock()

    @classmethod
    def of(cls, array: RemoteArray, axis: int) -> Self:
        """Returns an array of the mesh with padding at the end of an axis."""
        bucket = Bucket.of(axis, array.shape[axis])
        if bucket.size == bucket.length:
            return cls(array, bucket)
        return cls(array._functions.pad(array, bucket.widths(array.ndim)), bucket)

    @property
    def type(self) -> Array:
        """The logical shape and the element type."""
        shape, axis = self.padded.shape, self.bucket.axis
        return Array((*shape[:axis], self.bucket.length, *shape[axis + 1 :]), self.padded.dtype)

    @property
    def _functions(self) -> Any:
        return self.padded._functions

    def _described(self) -> RemoteArray:
        return self.padded

    def __remote_array__(self) -> RemoteArray:
        """Returns the array without its padding."""
        if self.bucket.size == self.bucket.length:
            return self.padded
        return self.padded[self._valid]  # type: ignore[no-any-return]

    @property
    def _valid(self) -> tuple[slice, ...]:
        return (*(slice(None),) * self.bucket.axis, slice(self.bucket.length))

    def get(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> NDArray:
        """Copies the values from the mesh, as `RemoteArray.get`."""
        return np.ascontiguousarray(self.padded.get(timeout=timeout)[self._valid])

    def delete(self, *, timeout: float | None = SHORT_TIMEOUT_S) -> None:
        """Deletes the array from the mesh, as `RemoteArray.delete`."""
        self.padded.delete(timeout=timeout)

    def __copy__(self) -> Self:
        return type(self)(copy.copy(self.padded), self.bucket)

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        return np.asarray(self.padded.__array__(copy=copy)[self._valid], dtype=dtype)

    def _get_implicitly(self) -> NDArray | None:
        values = self.padded._get_implicitly()
        return None if values is None else values[self._valid]

    def __setitem__(self, key: Any, value: Any) -> None:
        with self._writing():
            self._assign(self._functions.setitem(self, key, value))

    def flatten(self, order: str = "C") -> Any:
        """Returns the elements in one axis, in the order of `ravel`, as a copy."""
        return self.ravel(order).copy()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self.padded._is_writeable:
            raise ValueError("assignment destination is read-only")
        with self._write_lock.of_process():  # not that of the padded array, which a write replaces
            yield

    def _assign(self, result: Any) -> None:
        if not isinstance(result, BucketedArray):
            result = self.of(result, self.bucket.axis)
        if result.padded._is_traced and not self.padded._is_traced:
            raise TracingError(
                "a traced function changes an array of a bucket that is not its own; begin with a copy, a = a.copy(), "
                "and return it"
            )
        self.padded = result.padded

    def __repr__(self) -> str:
        return f"<BucketedArray {self.type}, axis {self.bucket.axis} of {self.bucket.size}, in {self.padded!r}>"


def without_padding(array: BucketedArray) -> RemoteArray:
    """Returns an array without its padding, which is cut when its values are read; `with_padding` undoes it."""
    array.padded._store.padded_axis = array.bucket.axis
    return array.padded[array._valid]  # type: ignore[no-any-return]


def with_padding(array: RemoteArray) -> BucketedArray | None:
    """Returns an array that `without_padding` has returned with its padding; None for another one."""
    padded = array._with_padding
    if padded is None:
        return None
    axis = array._store.padded_axis
    assert axis is not None
    return BucketedArray(padded, Bucket(axis, array.shape[axis], padded.shape[axis]))
