"""The protocols of NumPy and of the Python array API standard for arrays on the mesh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shardcall._src.device_arrays.array_operators import ArrayOperators, BinaryMethod, can_be_operand
from shardcall._src.device_arrays.element_updates import IndexedArray
from shardcall._src.device_arrays.numpy_protocols import apply_function, apply_ufunc
from shardcall._src.device_arrays.standard_methods import StandardMethods
from shardcall._src.types.tracebacks import shorten


def assigning(name: str) -> BinaryMethod:
    """Returns the method of an operator that assigns: the result has the array's type where that is of its kind."""

    def method(self: ArrayProtocols, other: Any, /) -> Any:
        try:
            if not can_be_operand(other):
                return NotImplemented
            made, dtype = getattr(self._functions, name)(self, other), self.dtype
            is_kept = made.dtype != dtype and np.can_cast(made.dtype, dtype, "same_kind")
            return made.astype(dtype) if is_kept else made
        except Exception as error:
            shorten(error)
            raise

    return method


class ArrayProtocols(ArrayOperators, StandardMethods):
    """Operators, indices, and the protocols of NumPy and of the Python array API standard."""

    if TYPE_CHECKING:

        def __len__(self) -> int: ...
        def __copy__(self) -> Any: ...

    __iadd__: ClassVar[BinaryMethod] = assigning("add")
    __isub__: ClassVar[BinaryMethod] = assigning("subtract")
    __imul__: ClassVar[BinaryMethod] = assigning("multiply")
    __itruediv__: ClassVar[BinaryMethod] = assigning("divide")
    __ifloordiv__: ClassVar[BinaryMethod] = assigning("floor_divide")
    __imod__: ClassVar[BinaryMethod] = assigning("remainder")
    __ipow__: ClassVar[BinaryMethod] = assigning("power")
    __imatmul__: ClassVar[BinaryMethod] = assigning("matmul")
    __iand__: ClassVar[BinaryMethod] = assigning("bitwise_and")
    __ior__: ClassVar[BinaryMethod] = assigning("bitwise_or")
    __ixor__: ClassVar[BinaryMethod] = assigning("bitwise_xor")
    __ilshift__: ClassVar[BinaryMethod] = assigning("left_shift")
    __irshift__: ClassVar[BinaryMethod] = assigning("right_shift")

    def __getitem__(self, key: Any) -> Any:
        return self._functions.getitem(self, key)

    @property
    def at(self) -> IndexedArray:
        """Updates of elements that return a new array: ``array.at[key].set(values)``, as ``jax.Array.at``."""
        return IndexedArray(self._functions, self.__copy__())

    def __iter__(self) -> Iterator[Any]:
        try:
            for index in range(len(self)):
                yield self[index]
        except Exception as error:
            shorten(error)
            raise

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Returns the functions of arrays, as `Client.xp`."""
        return self._functions

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        try:
            if not all(map(can_be_operand, inputs)):
                return NotImplemented
            return apply_ufunc(self._functions, ufunc, method, inputs, kwargs)
        except Exception as error:
            shorten(error)
            raise

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        ours = ArrayOperators | np.ndarray
        if any(hasattr(kind, "__array_function__") and not issubclass(kind, ours) for kind in types):
            return NotImplemented
        try:
            return apply_function(self._functions, func, args, kwargs)
        except Exception as error:
            shorten(error)
            raise
