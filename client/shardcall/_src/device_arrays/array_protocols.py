"""The methods of arrays on the mesh of the array API standard, NumPy's protocols, DLPack and buffers."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex

import numpy as np

from shardcall._src.device_arrays.array_operators import AUGMENTED, ArrayOperators, BinaryMethod, can_be_operand
from shardcall._src.device_arrays.array_properties import PlacedArray
from shardcall._src.device_arrays.change_targets import target_of
from shardcall._src.device_arrays.element_updates import IndexedArray
from shardcall._src.device_arrays.numpy_protocols import apply_function, apply_ufunc
from shardcall._src.device_arrays.row_blocks import RowBlocks
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import OperandTypeError
from shardcall_core.types.tracebacks import shortened

DEVICE = "mesh"
"""The device of every array in the sense of the Python array API standard; `RemoteArray.mesh` has the devices."""

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""The versions of the Python array API standard that the functions of arrays follow, as those of NumPy 2.4."""

_CPU = (1, 0)  # DLPack's type and id
_WRITABLE, _FORMAT = 0x1, 0x4  # as of inspect.BufferFlags, which Python 3.11 lacks


def _augmented(name: str) -> BinaryMethod:
    """Returns the method of an augmented assignment, which changes the object as NumPy does."""

    @shortened
    def method(self: ArrayProtocols, other: Any, /) -> Any:
        if not can_be_operand(other):
            return NotImplemented
        if self._is_scalar:
            return getattr(self._functions, name)(self, other)
        with self._writing():
            self._assign(_as_result(name, getattr(self._functions, name)(self, other), self))
        return self

    return method


def _as_result(name: str, result: Any, array: ArrayProtocols) -> Any:
    """Returns the result of an operator, converted to the element type of the array that it changes.

    Raises:
        ValueError: for another shape.
        TypeError: for a type that NumPy does not convert silently.
    """
    if result.shape != array.shape:
        raise ValueError(
            f"{name} in place makes an array of shape {result.shape}, and the one that it changes is of shape "
            f"{array.shape}; write a = a {_SYMBOLS[name]} b for a new array"
        )
    if result.dtype == array.dtype:
        return result
    if not np.can_cast(result.dtype, array.dtype, "same_kind"):
        raise TypeError(
            f"{name} in place makes {result.dtype.name}, and the array that it changes is of {array.dtype.name}; write "
            f"a = a {_SYMBOLS[name]} b for a new array"
        )
    return result.astype(array.dtype)


_SYMBOLS = dict(
    zip(AUGMENTED.values(), ("+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "<<", ">>"), strict=True)
)


@shortened
class ArrayProtocols(ArrayOperators):
    """Operators, indices, and the protocols of NumPy and of the Python array API standard."""

    if TYPE_CHECKING:

        @property
        def nbytes(self) -> int: ...
        def __len__(self) -> int: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __copy__(self) -> Any: ...
        def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray: ...
        def _described(self) -> PlacedArray: ...

    _copied_with: tuple[RowBlocks, int] | None = None
    """Of a row that a loop yielded: the copies of the rows, and its index."""

    @abstractmethod
    def _get_implicitly(self) -> NDArray | None:
        """Copies the values and counts the copy; returns None if the client refuses implicit copies."""

    def __str__(self) -> str:
        """Returns the number of an array without axes, and a description of any other array."""
        if not self.shape and (values := self._get_implicitly()) is not None:
            return str(values[()])
        return repr(self)

    @abstractmethod
    def _writing(self) -> AbstractContextManager[None]:
        """Keeps other threads from writing to the array, from the reading of its values to `_assign`."""

    @abstractmethod
    def _assign(self, result: Any) -> None:
        """Writes an array that was computed from this one to it.

        Args:
            result: the array, of the same type.
        """

    @property
    def _is_scalar(self) -> bool:
        """True where NumPy has a scalar, which an augmented assignment leaves as it is."""
        return False

    def __getitem__(self, key: Any) -> Any:
        return self._functions.getitem(self, key)

    def __delitem__(self, key: Any) -> NoReturn:
        raise ValueError("cannot delete array elements; numpy.delete(array, …) returns an array without them")

    @property
    def at(self) -> IndexedArray:
        """Updates of elements that return a new array: ``array.at[key].set(values)``, as ``jax.Array.at``."""
        return IndexedArray(self._functions, self.__copy__())

    def fill(self, value: Any, /) -> None:
        """Writes one value to all elements, as ``numpy.ndarray.fill``.

        Raises:
            ValueError: for an array of values.
        """
        target_of(self, "fill")
        if shape := np.shape(value):
            raise ValueError(f"value is of shape {shape}; give one number, or assign array[...] = values")
        self.__setitem__(..., value)

    def put(self, indices: Any, values: Any, /, mode: str = "raise") -> None:
        """Replaces elements at indices of the flattened array, as `xp.put`."""
        self._functions.put(self, indices, values, mode)

    def sort(
        self, axis: SupportsIndex = -1, kind: Any = None, order: Any = None, *, stable: bool | None = None,
        descending: bool | None = None,
    ) -> None:  # fmt: skip
        """Sorts the elements along an axis, as ``numpy.ndarray.sort``; NumPy has ``descending`` from 2.5 on."""
        options: dict[str, Any] = {} if descending is None else {"descending": descending}
        with self._writing():
            self._assign(np.sort(self, operator.index(axis), kind, order, stable=stable, **options))

    def partition(self, kth: Any, /, axis: SupportsIndex = -1, kind: Any = "introselect", order: Any = None) -> None:
        """Sorts the elements along an axis, as ``numpy.ndarray.partition`` allows.

        Raises:
            ValueError: for an index kth that there is not.
        """
        target_of(self, "partition")
        with self._writing():
            self._assign(np.partition(self, kth, operator.index(axis), kind, order))

    def __iter__(self) -> Iterator[Any]:
        """Yields the rows, or the elements of an array of one axis, which are copied in blocks.

        A row is a view on the mesh. The first that is read implicitly, such as by a loop over its elements, copies the
        rows that follow, too.
        """
        if not self.shape:
            raise TypeError("iteration over an array without axes")  # now, as numpy.iterable expects
        return self._rows(range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over an array without axes")
        return self._rows(range(len(self))[::-1])

    def _rows(self, indices: Iterable[int]) -> Iterator[Any]:
        blocks, has_rows = RowBlocks(self), len(self.shape) > 1
        for index in indices:
            if has_rows:
                row = self[index]
                row._copied_with = blocks, index
                yield row
            else:
                element = blocks.row(index)
                yield self[index] if element is None else element

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """Returns the functions of arrays, as `Client.xp`.

        Raises:
            ValueError: for a version of the standard that they do not follow.
        """
        if api_version is not None and api_version not in VERSIONS:
            raise ValueError(
                f"api_version={api_version!r}; the versions of the standard here are {', '.join(VERSIONS)}"
            )
        return self._functions

    @property
    def device(self) -> str:
        """``"mesh"``, the device in the sense of the Python array API standard."""
        return DEVICE

    def to_device(self, device: str, /, *, stream: Any = None) -> Self:
        """Returns the array, which is on the only device there is.

        Raises:
            ValueError: for another device.
        """
        if device != DEVICE or stream is not None:
            raise ValueError(
                f"device={device!r} and stream={stream!r}; the only device is {DEVICE!r}, without streams: to move an "
                "array between devices use xp.asarray(x, mesh=…), and get() for its values"
            )
        return self

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Returns a copy of the values as DLPack, as `__array__` returns one.

        Raises:
            BufferError: if no copy is allowed, or it is to be on another device.
        """
        if copy is False or stream is not None or dl_device not in (None, _CPU):
            raise BufferError("the values are on the mesh; DLPack has a copy in this process: leave out its arguments")
        return np.array(self.__array__()).__dlpack__(max_version=max_version)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the device of the copy: this process."""
        return _CPU

    def __bytes__(self) -> bytes:
        return np.asarray(self).tobytes()

    def __buffer__(self, flags: int, /) -> memoryview:
        """Returns the bytes of a copy of the values, for functions such as those of ``hashlib``; from Python 3.12 on.

        NumPy, which asks for the element type, too, takes `__array__` instead.

        Raises:
            BufferError: for a buffer with an element type, or one to be written to.
        """
        if flags & (_WRITABLE | _FORMAT):
            raise BufferError("the values are on the mesh: use get(), a copy of them in this process")
        return np.asarray(self).reshape(-1).view(np.uint8).data.toreadonly()

    def __release_buffer__(self, buffer: memoryview, /) -> None:
        """Releases the copy; ``numpy.frombuffer`` uses the memory longer of classes that do not define this."""
        buffer.release()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        operands = inputs if method != "at" else (inputs[0], *inputs[2:])  # without the index
        if not all(map(can_be_operand, operands)) or any(map(_has_functions, kwargs.get("out", ()))):
            _check_classes(ufunc, operands, kwargs.get("out", ()))
            return NotImplemented
        return apply_ufunc(self._functions, ufunc, method, inputs, kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        ours = ArrayOperators | np.ndarray
        if any(
            hasattr(argument_type, "__array_function__") and not issubclass(argument_type, ours)
            for argument_type in types
        ):
            return NotImplemented
        return apply_function(self._functions, func, args, kwargs)


for _name, _function in AUGMENTED.items():
    setattr(ArrayProtocols, f"__{_name}__", _augmented(_function))


def _check_classes(ufunc: np.ufunc, operands: Sequence[Any], out: Sequence[Any]) -> None:
    """Checks that operands are arrays or numbers, unless one is of a class that has ufuncs of its own.

    Raises:
        OperandTypeError: if one is neither, of which NumPy's error would print the values of arrays.
    """
    others = [(number, operand) for number, operand in enumerate(operands, 1) if not can_be_operand(operand)]
    have_ufuncs = any(hasattr(type(operand), "__array_ufunc__") for _, operand in others)
    if others and not have_ufuncs and not any(map(_has_functions, out)):
        number, operand = others[0]
        raise OperandTypeError(
            f"operand {number} of numpy.{ufunc.__name__} is of the type {type(operand).__name__}; give an array or "
            "a number",
            field=f"x{number}",
        )


def _has_functions(target: object) -> bool:
    """Returns whether an object that results are to be copied to is of another class with functions of its own."""
    return not issubclass(type(target), ArrayOperators | np.ndarray) and hasattr(type(target), "__array_ufunc__")
