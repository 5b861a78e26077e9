"""Operators, methods and attributes that compute new arrays."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.missing_attributes import check_row_major, missing_attribute
from shardcall._src.types.arrays import NDArray
from shardcall._src.types.tracebacks import shorten, shorten_methods, shortened

_SCALARS = (bool, int, float, complex, np.generic, list, tuple)

BinaryMethod: TypeAlias = Callable[[Any, Any], Any]
UnaryMethod: TypeAlias = Callable[[Any], Any]
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None


AUGMENTED: Mapping[str, str] = {
    "iadd": "add",
    "isub": "subtract",
    "imul": "multiply",
    "itruediv": "divide",
    "ifloordiv": "floor_divide",
    "imod": "remainder",
    "ipow": "power",
    "imatmul": "matmul",
    "iand": "bitwise_and",
    "ior": "bitwise_or",
    "ixor": "bitwise_xor",
    "ilshift": "left_shift",
    "irshift": "right_shift",
}
"""The augmented assignments, by their names in Python's module ``operator``, and what they compute."""


def can_be_operand(value: object) -> bool:
    """Returns whether an operator takes a value, and does not leave the operation to the value's own class."""
    if isinstance(value, (ArrayOperators, np.ndarray, *_SCALARS)):
        return not isinstance(value, np.ma.MaskedArray)
    kind = type(value)
    if hasattr(kind, "__remote_array__"):
        return True
    # Another library's class of arrays has operators of its own, which call NumPy's functions.
    return not hasattr(kind, "__array_ufunc__") and (hasattr(kind, "__array__") or hasattr(kind, "__dlpack__"))


def _binary(name: str) -> Callable[[ArrayOperators, Any], Any]:
    def method(self: ArrayOperators, other: Any, /) -> Any:
        try:
            if name == "power" and type(other) is int and other == 2 and self.dtype == np.bool_:
                other = np.int8(2)  # NumPy squares, which gives int8
            return getattr(self._functions, name)(self, other) if can_be_operand(other) else NotImplemented
        except Exception as error:
            shorten(error)
            raise

    return method


def _reflected(name: str) -> Callable[[ArrayOperators, Any], Any]:
    def method(self: ArrayOperators, other: Any, /) -> Any:
        try:
            return getattr(self._functions, name)(other, self) if can_be_operand(other) else NotImplemented
        except Exception as error:
            shorten(error)
            raise

    return method


def _unary(name: str) -> Callable[[ArrayOperators], Any]:
    def method(self: ArrayOperators, /) -> Any:
        try:
            return getattr(self._functions, name)(self)
        except Exception as error:
            shorten(error)
            raise

    return method


@shorten_methods
class ArrayOperators:
    """Operators, methods and attributes of an array, by the functions of a namespace with NumPy's names."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as of an ndarray, whose comparison is elementwise

    @property
    @abstractmethod
    def _functions(self) -> Any:
        """The namespace with the functions."""

    if not TYPE_CHECKING:  # or each name would be an attribute

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def dtype(self) -> np.dtype: ...
        @property
        def size(self) -> int: ...
        def get(self) -> NDArray: ...

    __add__: ClassVar[BinaryMethod] = _binary("add")
    __radd__: ClassVar[BinaryMethod] = _reflected("add")
    __sub__: ClassVar[BinaryMethod] = _binary("subtract")
    __rsub__: ClassVar[BinaryMethod] = _reflected("subtract")
    __mul__: ClassVar[BinaryMethod] = _binary("multiply")
    __rmul__: ClassVar[BinaryMethod] = _reflected("multiply")
    __truediv__: ClassVar[BinaryMethod] = _binary("divide")
    __rtruediv__: ClassVar[BinaryMethod] = _reflected("divide")
    __floordiv__: ClassVar[BinaryMethod] = _binary("floor_divide")
    __rfloordiv__: ClassVar[BinaryMethod] = _reflected("floor_divide")
    __mod__: ClassVar[BinaryMethod] = _binary("remainder")
    __rmod__: ClassVar[BinaryMethod] = _reflected("remainder")
    __pow__: ClassVar[BinaryMethod] = _binary("power")
    __rpow__: ClassVar[BinaryMethod] = _reflected("power")
    __matmul__: ClassVar[BinaryMethod] = _binary("matmul")
    __rmatmul__: ClassVar[BinaryMethod] = _reflected("matmul")
    __and__: ClassVar[BinaryMethod] = _binary("bitwise_and")
    __rand__: ClassVar[BinaryMethod] = _reflected("bitwise_and")
    __or__: ClassVar[BinaryMethod] = _binary("bitwise_or")
    __ror__: ClassVar[BinaryMethod] = _reflected("bitwise_or")
    __xor__: ClassVar[BinaryMethod] = _binary("bitwise_xor")
    __rxor__: ClassVar[BinaryMethod] = _reflected("bitwise_xor")
    __lshift__: ClassVar[BinaryMethod] = _binary("left_shift")
    __rlshift__: ClassVar[BinaryMethod] = _reflected("left_shift")
    __rshift__: ClassVar[BinaryMethod] = _binary("right_shift")
    __rrshift__: ClassVar[BinaryMethod] = _reflected("right_shift")
    __lt__: ClassVar[BinaryMethod] = _binary("less")
    __le__: ClassVar[BinaryMethod] = _binary("less_equal")
    __gt__: ClassVar[BinaryMethod] = _binary("greater")
    __ge__: ClassVar[BinaryMethod] = _binary("greater_equal")
    __neg__: ClassVar[UnaryMethod] = _unary("negative")
    __pos__: ClassVar[UnaryMethod] = _unary("positive")
    __abs__: ClassVar[UnaryMethod] = _unary("absolute")
    __invert__: ClassVar[UnaryMethod] = _unary("invert")

    @shortened
    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    @shortened
    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __eq__(self, other: object) -> Any:
        try:
            if other is None or isinstance(other, str):
                return self._functions.logical_and(self, False)  # no element is equal
            return self._functions.equal(self, other) if can_be_operand(other) else NotImplemented
        except Exception as error:
            shorten(error)
            raise

    def __ne__(self, other: object) -> Any:
        try:
            if other is None or isinstance(other, str):
                return self._functions.logical_or(self, True)
            return self._functions.not_equal(self, other) if can_be_operand(other) else NotImplemented
        except Exception as error:
            shorten(error)
            raise

    @shortened
    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    def __bool__(self) -> bool:
        if (size := self.size) != 1:
            which = "with more than one element" if size else "without elements"
            raise ValueError(f"the truth value of an array {which} is ambiguous; use any() or all()")
        return bool(self.get().item())

    def __int__(self) -> int:
        return int(self._only("int"))

    def __float__(self) -> float:
        return float(self._only("float"))

    def __complex__(self) -> complex:
        return complex(self._only("complex"))

    def __index__(self) -> int:
        if self.shape:
            raise TypeError("only an integer array of no axes can be converted to an index")
        return operator.index(self.get()[()])

    @shortened
    def __round__(self, ndigits: int | None = None) -> Any:
        return self._functions.round(self, ndigits or 0)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self.shape:
            raise TypeError(f"format {spec!r} is for one number, and the array is of shape {self.shape}; use get()")
        return format(self.get().item(), spec)

    def _only(self, kind: str) -> Any:
        """Returns the only element."""
        try:
            if self.size != 1:
                raise TypeError(f"an array of shape {self.shape} cannot be converted to {kind}: it has not one element")
            return self.get().item()
        except Exception as error:
            shorten(error)
            raise

    @property
    @shortened
    def T(self) -> Self:  # noqa: N802  # NumPy's name
        """The array with its axes reversed."""
        return self.transpose()

    @property
    @shortened
    def mT(self) -> Self:  # noqa: N802  # NumPy's name
        """The array with its last two axes exchanged.

        Raises:
            ValueError: if it has fewer than two.
        """
        return self._functions.matrix_transpose(self)  # type: ignore[no-any-return]

    @property
    @shortened
    def real(self) -> Self:
        """The real part."""
        return self._functions.real(self)  # type: ignore[no-any-return]

    @property
    @shortened
    def imag(self) -> Self:
        """The imaginary part."""
        return self._functions.imag(self)  # type: ignore[no-any-return]

    def item(self) -> Any:
        """Returns the only element as a Python number.

        Raises:
            ValueError: if there is not exactly one.
        """
        if self.size != 1:
            raise ValueError(f"item() of an array of shape {self.shape}: it has not one element; use get()")
        return self.get().item()

    def tolist(self) -> Any:
        """Copies the values to this process; returns them as nested lists of Python numbers."""
        return self.get().tolist()

    def transpose(self, *axes: Any) -> Self:
        """Returns the array with its axes in another order, as ``numpy.ndarray.transpose``."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], SupportsIndex) else axes or None
        return self._functions.transpose(self, order)  # type: ignore[no-any-return]

    def reshape(self, *shape: Any, order: str = "C") -> Self:
        """Returns the elements in another shape, in row-major order, as ``numpy.ndarray.reshape``."""
        check_row_major(order)
        sizes = shape[0] if len(shape) == 1 else shape
        return self._functions.reshape(self, sizes)  # type: ignore[no-any-return]

    def ravel(self, order: str = "C") -> Self:
        """Returns the elements in one axis, in row-major order."""
        check_row_major(order)
        return self._functions.reshape(self, -1)  # type: ignore[no-any-return]

    flatten = ravel

    def squeeze(self, axis: Axes = None) -> Self:
        """Returns the array without axes of size 1."""
        return self._functions.squeeze(self, axis)  # type: ignore[no-any-return]

    def astype(self, dtype: npt.DTypeLike, order: str = "K", *, copy: bool = True) -> Self:
        """Returns the array in another element type; the same object with ``copy=False`` if it has the type."""
        check_row_major(order)
        if not copy and self.dtype == np.dtype(dtype):
            return self
        return self._functions.astype(self, dtype)  # type: ignore[no-any-return]

    def nonzero(self) -> tuple[Self, ...]:
        """Returns the indices of the elements that are not zero, one array for each axis; waits for their number."""
        return self._functions.nonzero(self)  # type: ignore[no-any-return]

    def compress(self, condition: Any, axis: int | None = None) -> Self:
        """Returns the elements along an axis for which a condition is true; waits for their number."""
        return self._functions.compress(condition, self, axis)  # type: ignore[no-any-return]

    def take(self, indices: Any, axis: SupportsIndex | None = None) -> Self:
        """Returns the elements at indices along an axis; of the flattened array without one."""
        return self._functions.take(self, indices, axis)  # type: ignore[no-any-return]

    def repeat(self, repeats: SupportsIndex, axis: SupportsIndex | None = None) -> Self:
        """Returns each row several times."""
        return self._functions.repeat(self, repeats, axis)  # type: ignore[no-any-return]

    def argsort(self, axis: SupportsIndex | None = -1) -> Self:
        """Returns the indices that sort an axis."""
        return self._functions.argsort(self, axis)  # type: ignore[no-any-return]

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Returns the diagonals of matrices."""
        return self._functions.diagonal(self, offset, axis1, axis2)  # type: ignore[no-any-return]

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Returns the sums of the diagonals of matrices."""
        return self._functions.trace(self, offset, axis1, axis2)  # type: ignore[no-any-return]

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Returns the array with two axes exchanged."""
        return self._functions.swapaxes(self, axis1, axis2)  # type: ignore[no-any-return]

    def copy(self, order: str = "C") -> Self:
        """Returns a copy on the mesh."""
        check_row_major(order)
        return self._functions.copy(self)  # type: ignore[no-any-return]

    def conj(self) -> Self:
        """Returns the complex conjugate."""
        return self._functions.conjugate(self)  # type: ignore[no-any-return]

    conjugate = conj

    def round(self, decimals: int = 0) -> Self:
        """Returns the array rounded to a number of decimals, as ``numpy.round``."""
        return self._functions.round(self, decimals)  # type: ignore[no-any-return]

    def dot(self, other: Any) -> Self:
        """Returns the product with another array, as ``numpy.dot``."""
        return self._functions.dot(self, other)  # type: ignore[no-any-return]

    def clip(self, min: Any = None, max: Any = None) -> Self:  # noqa: A002  # NumPy's names
        """Returns the array with its elements limited to a range."""
        return self._functions.clip(self, min, max)  # type: ignore[no-any-return]

    def cumsum(self, axis: SupportsIndex | None = None, dtype: npt.DTypeLike | None = None) -> Self:
        """Returns the cumulative sum along an axis; of the flattened array without one."""
        return self._functions.cumsum(self, axis, dtype)  # type: ignore[no-any-return]

    def cumprod(self, axis: SupportsIndex | None = None, dtype: npt.DTypeLike | None = None) -> Self:
        """Returns the cumulative product along an axis; of the flattened array without one."""
        return self._functions.cumprod(self, axis, dtype)  # type: ignore[no-any-return]

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Self:
        """Returns the positions at which numbers keep this array sorted, as ``numpy.searchsorted``."""
        return self._functions.searchsorted(self, v, side, sorter)  # type: ignore[no-any-return]

    def sum(self, axis: Axes = None, dtype: npt.DTypeLike | None = None, **options: Any) -> Self:
        """Returns the sum over axes; options are keepdims, initial and where."""
        return self._functions.sum(self, axis, dtype, **options)  # type: ignore[no-any-return]

    def prod(self, axis: Axes = None, dtype: npt.DTypeLike | None = None, **options: Any) -> Self:
        """Returns the product over axes; options are keepdims, initial and where."""
        return self._functions.prod(self, axis, dtype, **options)  # type: ignore[no-any-return]

    def mean(self, axis: Axes = None, dtype: npt.DTypeLike | None = None, **options: Any) -> Self:
        """Returns the mean over axes; options are keepdims and where."""
        return self._functions.mean(self, axis, dtype, **options)  # type: ignore[no-any-return]

    def var(self, axis: Axes = None, *, ddof: int = 0, **options: Any) -> Self:
        """Returns the variance over axes; options are keepdims and where."""
        return self._functions.var(self, axis, ddof=ddof, **options)  # type: ignore[no-any-return]

    def std(self, axis: Axes = None, *, ddof: int = 0, **options: Any) -> Self:
        """Returns the standard deviation over axes; options are keepdims and where."""
        return self._functions.std(self, axis, ddof=ddof, **options)  # type: ignore[no-any-return]

    def max(self, axis: Axes = None, **options: Any) -> Self:
        """Returns the maximum over axes; options are keepdims, initial and where."""
        return self._functions.max(self, axis, **options)  # type: ignore[no-any-return]

    def min(self, axis: Axes = None, **options: Any) -> Self:
        """Returns the minimum over axes; options are keepdims, initial and where."""
        return self._functions.min(self, axis, **options)  # type: ignore[no-any-return]

    def any(self, axis: Axes = None, **options: Any) -> Self:
        """Returns whether any element is true, over axes; options are keepdims and where."""
        return self._functions.any(self, axis, **options)  # type: ignore[no-any-return]

    def all(self, axis: Axes = None, **options: Any) -> Self:
        """Returns whether all elements are true, over axes; options are keepdims and where."""
        return self._functions.all(self, axis, **options)  # type: ignore[no-any-return]

    def argmax(self, axis: SupportsIndex | None = None, **options: Any) -> Self:
        """Returns the index of the first maximum along an axis; the option is keepdims."""
        return self._functions.argmax(self, axis, **options)  # type: ignore[no-any-return]

    def argmin(self, axis: SupportsIndex | None = None, **options: Any) -> Self:
        """Returns the index of the first minimum along an axis; the option is keepdims."""
        return self._functions.argmin(self, axis, **options)  # type: ignore[no-any-return]
