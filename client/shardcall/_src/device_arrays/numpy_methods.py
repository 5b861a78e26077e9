"""Methods of NumPy's arrays."""

from __future__ import annotations

import inspect
import operator
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.missing_attributes import check_row_major
from shardcall._src.device_arrays.views import axes_in_order
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.tracebacks import shortened

Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None

_numpy: Any = np  # whose functions find those of an array by its protocol
_NO_VALUE: Any = inspect.signature(np.sum).parameters["keepdims"].default


@shortened
class NumPyMethods:
    """Methods with the arguments of those of ``numpy.ndarray``, by the functions of NumPy with their names.

    An array of this process that is passed as ``out`` takes the result, and is returned.
    """

    @property
    @abstractmethod
    def _functions(self) -> Any:
        """The namespace with the functions."""

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> np.dtype: ...
        @property
        def size(self) -> int: ...
        def get(self) -> NDArray: ...
        def __getitem__(self, key: Any) -> Any: ...

    def to_numpy(self) -> NDArray:
        """Copies the values to this process as ``numpy.asarray`` does; libraries call it, and the copy is counted."""
        return np.asarray(self)

    def item(self, *args: Any) -> Any:
        """Returns an element as a Python number, as ``numpy.ndarray.item``.

        Args:
            args: its indices, or one index in the flattened array; nothing for the only element.

        Raises:
            IndexError: if there is none at the indices.
            ValueError: if they are not one for each axis; without indices, if there is not exactly one element.
        """
        key = args[0] if len(args) == 1 and isinstance(args[0], tuple) else args
        if not key:
            if self.size != 1:
                raise ValueError(f"item() of an array of shape {self.shape}: it has not one element; use get()")
            return self.get().item()
        key = tuple(map(operator.index, key))
        if len(key) == 1 and len(self.shape) != 1:
            if not -self.size <= key[0] < self.size:
                raise IndexError(f"index {key[0]} is out of bounds for an array of {self.size} elements")
            key = tuple(map(int, np.unravel_index(key[0] % self.size, self.shape)))
        if len(key) != len(self.shape):
            raise ValueError(f"item() with {len(key)} indices of an array of shape {self.shape}")
        return self[key].get().item()

    def tolist(self) -> Any:
        """Copies the values to this process; returns them as nested lists of Python numbers."""
        return self.get().tolist()

    def tobytes(self, order: str | None = "C") -> bytes:
        """Copies the values to this process; returns their bytes, in the order of `ravel`."""
        axes = axes_in_order(self, order)
        return self.get().transpose(axes).tobytes() if axes else self.get().tobytes()

    def transpose(self, *axes: Any) -> Self:
        """Returns the array with its axes in another order, as ``numpy.ndarray.transpose``."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], SupportsIndex) else axes or None
        return self._functions.transpose(self, order)  # type: ignore[no-any-return]

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Self:
        """Returns the elements in another shape, as ``numpy.ndarray.reshape``."""
        sizes = shape[0] if len(shape) == 1 else shape
        return self._functions.reshape(self, sizes, order, copy=copy)  # type: ignore[no-any-return]

    def ravel(self, order: str = "C") -> Self:
        """Returns the elements in one axis, as ``numpy.ravel``."""
        return self._functions.ravel(self, order)  # type: ignore[no-any-return]

    flatten = ravel

    def squeeze(self, axis: Axes = None) -> Self:
        """Returns the array without axes of size 1."""
        return self._functions.squeeze(self, axis)  # type: ignore[no-any-return]

    def astype(
        self, dtype: npt.DTypeLike, order: str = "K", casting: Any = "unsafe", subok: bool = True, copy: bool = True
    ) -> Self:
        """Returns the array in another element type; the same object with ``copy=False`` if it has the type.

        Raises:
            TypeError: if ``casting`` does not allow the conversion.
        """
        check_row_major(order)
        dtype = np.float64 if dtype is None else dtype  # as numpy.dtype(None) is
        if casting != "unsafe" and not np.can_cast(self.dtype, dtype, casting):
            raise TypeError(f"{self.dtype} is not converted to {np.dtype(dtype)} by the rule {casting!r}")
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return self._functions.astype(self, dtype)  # type: ignore[no-any-return]

    def nonzero(self) -> tuple[Self, ...]:
        """Returns the indices of the elements that are not zero, one array for each axis; waits for their number."""
        return self._functions.nonzero(self)  # type: ignore[no-any-return]

    def compress(self, condition: Any, axis: int | None = None, out: NDArray | None = None) -> Self:
        """Returns the elements along an axis for which a condition is true; waits for their number."""
        return _numpy.compress(condition, self, axis, out)  # type: ignore[no-any-return]

    def take(
        self, indices: Any, axis: SupportsIndex | None = None, out: NDArray | None = None, mode: str = "raise"
    ) -> Self:
        """Returns the elements at indices along an axis; of the flattened array without one."""
        return _numpy.take(self, indices, axis, out, mode)  # type: ignore[no-any-return]

    def repeat(self, repeats: Any, axis: SupportsIndex | None = None) -> Self:
        """Returns each row several times."""
        return self._functions.repeat(self, repeats, axis)  # type: ignore[no-any-return]

    def argsort(
        self, axis: SupportsIndex | None = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None,
        descending: bool | None = None,
    ) -> Self:  # fmt: skip
        """Returns the indices that sort an axis; equal elements keep their sequence.

        NumPy has ``descending`` from 2.5 on.
        """
        options: dict[str, Any] = {} if descending is None else {"descending": descending}
        return _numpy.argsort(self, axis, kind, order, stable=stable, **options)  # type: ignore[no-any-return]

    def argpartition(
        self, kth: Any, /, axis: SupportsIndex | None = -1, kind: Any = "introselect", order: Any = None
    ) -> Self:
        """Returns indices of which that at kth is the sorted array's, as ``numpy.argpartition``."""
        return _numpy.argpartition(self, kth, axis, kind, order)  # type: ignore[no-any-return]

    def choose(self, choices: Any, /, out: NDArray | None = None, mode: str = "raise") -> Self:
        """Returns elements of several arrays, of each that which an element of this one names, as ``numpy.choose``."""
        return _numpy.choose(self, choices, out, mode)  # type: ignore[no-any-return]

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Returns the diagonals of matrices."""
        return self._functions.diagonal(self, offset, axis1, axis2)  # type: ignore[no-any-return]

    def trace(
        self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: npt.DTypeLike | None = None,
        out: NDArray | None = None,
    ) -> Self:  # fmt: skip
        """Returns the sums of the diagonals of matrices."""
        return _numpy.trace(self, offset, axis1, axis2, dtype, out)  # type: ignore[no-any-return]

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Returns the array with two axes exchanged."""
        return self._functions.swapaxes(self, axis1, axis2)  # type: ignore[no-any-return]

    def copy(self, order: str = "C") -> Self:
        """Returns a copy on the mesh."""
        return self._functions.copy(self, order)  # type: ignore[no-any-return]

    def conj(self) -> Self:
        """Returns the complex conjugate; of real numbers the array itself, as ``numpy.ndarray.conj``."""
        return self._functions.conjugate(self) if self.dtype.kind == "c" else self

    conjugate = conj

    def round(self, decimals: int = 0, out: NDArray | None = None) -> Self:
        """Returns the array rounded to a number of decimals, as ``numpy.round``."""
        return _numpy.round(self, decimals, out)  # type: ignore[no-any-return]

    def dot(self, other: Any, /, out: NDArray | None = None) -> Self:
        """Returns the product with another array, as ``numpy.dot``."""
        return _numpy.dot(self, other, out)  # type: ignore[no-any-return]

    def clip(self, min: Any = None, max: Any = None, out: NDArray | None = None, **options: Any) -> Self:  # noqa: A002
        """Returns the array with its elements limited to a range."""
        return _numpy.clip(self, min, max, out, **options)  # type: ignore[no-any-return]

    def cumsum(
        self, axis: SupportsIndex | None = None, dtype: npt.DTypeLike | None = None, out: NDArray | None = None
    ) -> Self:
        """Returns the cumulative sum along an axis; of the flattened array without one."""
        return _numpy.cumsum(self, axis, dtype, out)  # type: ignore[no-any-return]

    def cumprod(
        self, axis: SupportsIndex | None = None, dtype: npt.DTypeLike | None = None, out: NDArray | None = None
    ) -> Self:
        """Returns the cumulative product along an axis; of the flattened array without one."""
        return _numpy.cumprod(self, axis, dtype, out)  # type: ignore[no-any-return]

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Self:
        """Returns the positions at which numbers keep this array sorted, as ``numpy.searchsorted``."""
        return self._functions.searchsorted(self, v, side, sorter)  # type: ignore[no-any-return]

    def sum(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: NDArray | None = None, keepdims: bool = False,
        initial: Any = _NO_VALUE, where: Any = _NO_VALUE,
    ) -> Self:  # fmt: skip
        """Returns the sum over axes."""
        return _numpy.sum(self, axis, dtype, out, keepdims, initial, where)  # type: ignore[no-any-return]

    def prod(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: NDArray | None = None, keepdims: bool = False,
        initial: Any = _NO_VALUE, where: Any = _NO_VALUE,
    ) -> Self:  # fmt: skip
        """Returns the product over axes."""
        return _numpy.prod(self, axis, dtype, out, keepdims, initial, where)  # type: ignore[no-any-return]

    def mean(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: NDArray | None = None, keepdims: bool = False,
        *, where: Any = _NO_VALUE,
    ) -> Self:  # fmt: skip
        """Returns the mean over axes."""
        return _numpy.mean(self, axis, dtype, out, keepdims, where=where)  # type: ignore[no-any-return]

    def var(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: NDArray | None = None, ddof: float = 0,
        keepdims: bool = False, *, where: Any = _NO_VALUE, mean: Any = _NO_VALUE,
    ) -> Self:  # fmt: skip
        """Returns the variance over axes."""
        return _numpy.var(self, axis, dtype, out, ddof, keepdims, where=where, mean=mean)  # type: ignore[no-any-return]

    def std(
        self, axis: Axes = None, dtype: npt.DTypeLike | None = None, out: NDArray | None = None, ddof: float = 0,
        keepdims: bool = False, *, where: Any = _NO_VALUE, mean: Any = _NO_VALUE,
    ) -> Self:  # fmt: skip
        """Returns the standard deviation over axes."""
        return _numpy.std(self, axis, dtype, out, ddof, keepdims, where=where, mean=mean)  # type: ignore[no-any-return]

    def max(
        self, axis: Axes = None, out: NDArray | None = None, keepdims: bool = False, initial: Any = _NO_VALUE,
        where: Any = _NO_VALUE,
    ) -> Self:  # fmt: skip
        """Returns the maximum over axes."""
        return _numpy.max(self, axis, out, keepdims, initial, where)  # type: ignore[no-any-return]

    def min(
        self, axis: Axes = None, out: NDArray | None = None, keepdims: bool = False, initial: Any = _NO_VALUE,
        where: Any = _NO_VALUE,
    ) -> Self:  # fmt: skip
        """Returns the minimum over axes."""
        return _numpy.min(self, axis, out, keepdims, initial, where)  # type: ignore[no-any-return]

    def any(
        self, axis: Axes = None, out: NDArray | None = None, keepdims: bool = False, *, where: Any = _NO_VALUE
    ) -> Self:
        """Returns whether any element is true, over axes."""
        return _numpy.any(self, axis, out, keepdims, where=where)  # type: ignore[no-any-return]

    def all(
        self, axis: Axes = None, out: NDArray | None = None, keepdims: bool = False, *, where: Any = _NO_VALUE
    ) -> Self:
        """Returns whether all elements are true, over axes."""
        return _numpy.all(self, axis, out, keepdims, where=where)  # type: ignore[no-any-return]

    def argmax(self, axis: SupportsIndex | None = None, out: NDArray | None = None, *, keepdims: bool = False) -> Self:
        """Returns the index of the first maximum along an axis."""
        return _numpy.argmax(self, axis, out, keepdims=keepdims)  # type: ignore[no-any-return]

    def argmin(self, axis: SupportsIndex | None = None, out: NDArray | None = None, *, keepdims: bool = False) -> Self:
        """Returns the index of the first minimum along an axis."""
        return _numpy.argmin(self, axis, out, keepdims=keepdims)  # type: ignore[no-any-return]
