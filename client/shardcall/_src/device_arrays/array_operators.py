"""Operators, methods and attributes that compute new arrays, and the conversion of one element to a Python number."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self, TypeAlias

import numpy as np

from shardcall._src.device_arrays.missing_attributes import missing_attribute
from shardcall._src.device_arrays.numpy_methods import NumPyMethods
from shardcall_core.element_types import DType
from shardcall_core.types.errors import TracingError
from shardcall_core.types.tracebacks import shortened

_SCALARS = (bool, int, float, complex, np.generic, list, tuple)

BinaryMethod: TypeAlias = Callable[[Any, Any], Any]
UnaryMethod: TypeAlias = Callable[[Any], Any]


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


class Unconvertible:
    """Refuses the conversions of what stands for values that are not known while a function is traced."""

    def _refusal(self, what: str) -> TracingError:
        """Returns the error of a use that needs them."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise self._refusal("a condition of if, while, and, or, not, in")

    def __int__(self) -> int:
        raise self._refusal("int()")

    def __float__(self) -> float:
        raise self._refusal("float()")

    def __complex__(self) -> complex:
        raise self._refusal("complex()")

    def __index__(self) -> int:
        raise self._refusal("an index, a size or range()")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise self._refusal("numpy.asarray, or an assignment to elements of an array of this process,")


def can_be_operand(value: object) -> bool:
    """Returns whether an operator takes a value, and does not leave the operation to the value's own class."""
    if isinstance(value, (ArrayOperators, np.ndarray, *_SCALARS)):
        return not isinstance(value, np.ma.MaskedArray)
    operand_type = type(value)
    if hasattr(operand_type, "__remote_array__"):
        return True
    # Another library's class of arrays has operators of its own, which call NumPy's functions.
    return not hasattr(operand_type, "__array_ufunc__") and (
        hasattr(operand_type, "__array__") or hasattr(operand_type, "__dlpack__")
    )


def is_root(dtype: DType, exponent: object, *, by_operator: bool = False) -> bool:
    """Returns whether NumPy takes the square root as a power, which differs for -inf and -0.0.

    Args:
        dtype: the element type of the base.
        exponent: the exponent, of which 0.5 is one.
        by_operator: whether ``**`` is the function, which takes the root of all floats and complex numbers of NumPy for
            a number of Python.
    """
    if not isinstance(exponent, float | np.floating) or exponent != 0.5:
        return False
    if by_operator and type(exponent) is float:
        return dtype.kind in "fc"
    return dtype in (np.float32, np.float64) and np.result_type(dtype, exponent) == dtype


def _binary(name: str) -> Callable[[ArrayOperators, Any], Any]:
    @shortened
    def method(self: ArrayOperators, other: Any, /) -> Any:
        if name == "power" and type(other) is int and other == 2 and self.dtype == np.bool_:
            other = np.int8(2)  # NumPy squares, which gives int8
        if name == "power" and is_root(self.dtype, other, by_operator=True):
            return self._functions.sqrt(self)
        return getattr(self._functions, name)(self, other) if can_be_operand(other) else NotImplemented

    return method


def _reflected(name: str) -> Callable[[ArrayOperators, Any], Any]:
    @shortened
    def method(self: ArrayOperators, other: Any, /) -> Any:
        return getattr(self._functions, name)(other, self) if can_be_operand(other) else NotImplemented

    return method


def _unary(name: str) -> Callable[[ArrayOperators], Any]:
    @shortened
    def method(self: ArrayOperators, /) -> Any:
        return getattr(self._functions, name)(self)

    return method


@shortened
class ArrayOperators(NumPyMethods):
    """Operators, methods and attributes of an array, by the functions of a namespace with NumPy's names."""

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as of an ndarray, whose comparison is elementwise

    if not TYPE_CHECKING:  # or each name would be an attribute

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute(self, name)

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

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __eq__(self, other: object) -> Any:
        if other is None or isinstance(other, str):
            return self._functions.logical_and(self, False)  # no element is equal
        return self._functions.equal(self, other) if can_be_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Any:
        if other is None or isinstance(other, str):
            return self._functions.logical_or(self, True)
        return self._functions.not_equal(self, other) if can_be_operand(other) else NotImplemented

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

    def __round__(self, ndigits: int | None = None) -> Any:
        return self._functions.round(self, ndigits or 0)

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if self.shape:
            raise TypeError(f"format {spec!r} is for one number, and the array is of shape {self.shape}; use get()")
        return format(self.get().item(), spec)

    @shortened
    def _only(self, target: str) -> Any:
        """Returns the only element."""
        if self.size != 1:
            raise TypeError(f"an array of shape {self.shape} cannot be converted to {target}: it has not one element")
        return self.get().item()

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
