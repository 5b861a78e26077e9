"""Arrays that a traced function creates."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from shardcall._src.device_arrays.numpy_protocols import CHANGING
from shardcall._src.device_arrays.operands import as_operand
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.device_arrays.ufunc_methods import is_remote
from shardcall._src.traced.traced_array import TracedArray
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import TracingError

_WRITING_METHODS = ("fill", "put")
_NUMBERS = "biufc"


class CreatingTrace(Protocol):
    """The trace of a function.

    Attributes:
        name: the name of the function, with its file and line.
        is_closed: True after the trace.
    """

    name: str
    is_closed: bool

    @property
    def functions(self) -> Any:
        """The functions of arrays."""

    def present(self) -> AbstractContextManager[None]:
        """Adds the calls of a block to this trace."""

    def value(self, item: Any, name: str) -> TracedArray:
        """Returns any value as an array of the program."""


class CreatedArray(NDArrayOperatorsMixin):
    """An array that a traced function creates.

    It is an array of this process, and every operation is NumPy's, until a value of the program is written to it or to
    a view of it. From then on it is an array of the program, and its views are views of that.

    Args:
        trace: the trace that it is created in.
        values: its values.
        origin: the array that it is a view of; None if it is none.
        renew: returns the view again.
    """

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # as of an ndarray

    def __init__(
        self,
        trace: CreatingTrace,
        values: NDArray,
        origin: CreatedArray | None = None,
        renew: Callable[[], Any] | None = None,
    ) -> None:
        self._trace = trace
        self._values: Any = values
        self._shape = values.shape
        self._origin = origin
        self._renew = renew
        self._aliases: list[weakref.ref[NDArray]] = []

    @property
    def _present(self) -> Any:
        """The array at present: one of this process, or of the program."""
        if self._origin is not None and type(self._values) is np.ndarray:
            origin = self._origin._present
            if isinstance(origin, RemoteArray):
                self._values = self._renewed(origin)
        return self._values

    def _renewed(self, origin: RemoteArray) -> Any:
        assert self._renew is not None
        array = self._renew()
        is_view = isinstance(array, RemoteArray) and array._store is origin._store
        if not is_view or {array.shape, self._shape} != {self._values.shape}:
            raise TracingError(
                f"{self._trace.name} writes to an array that it creates, of which it uses a view that the mesh does "
                "not have, or whose shape it has set; write to the array before the view is taken, or index the array"
            )
        return array

    def _become_traced(self) -> None:
        """Makes it an array of the program."""
        if self._origin is not None:
            self._origin._become_traced()
        elif type(self._values) is np.ndarray and not self._trace.is_closed:
            if self._values.shape != self._shape or any(alias() is not None for alias in self._aliases):
                raise TracingError(
                    f"{self._trace.name} writes values of the program to an array that it creates, whose memory "
                    "another array of this process has, or whose shape it has set; create the array with "
                    "client.xp.zeros, client.xp.asarray or the like"
                )
            self._values = _as_traced(self._trace, self._values)

    def __remote_array__(self) -> RemoteArray | None:
        """Returns the array of the program; None if it is of this process."""
        array = self._present
        return array if isinstance(array, RemoteArray) else None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that `isinstance` sees: that of an array of this process while it is one."""
        return np.ndarray if type(self._present) is np.ndarray else CreatedArray

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(self._present, name)
        if callable(attribute):
            return functools.partial(self._run_method, name)
        return applied(self._trace, getattr, (self, name), {})

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
            return
        if is_of_program(value):
            self._become_traced()
        setattr(self._present, name, present(value))

    def _run_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        def method(array: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(array, name)(*args, **kwargs)

        if not is_of_program((*args, *kwargs.values())):
            return applied(self._trace, method, (self, *args), kwargs)
        if name in _WRITING_METHODS:
            self._become_traced()
        array = self._present if name in _WRITING_METHODS else self._in_program()
        return applied(self._trace, method, (array, *args), kwargs)

    def _in_program(self) -> Any:
        return self._trace.value(self, "an array that it creates")

    def __getitem__(self, key: Any) -> Any:
        if is_of_program(key) and type(self._present) is np.ndarray:
            return self._in_program()[present(key)]
        return applied(self._trace, operator.getitem, (self, key), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        if is_of_program((key, value)):
            self._become_traced()
        self._present[present(key)] = present(value)

    def __len__(self) -> int:
        return len(self._present)

    def __iter__(self) -> Iterator[Any]:
        array = self._present
        return (self[i] for i in range(len(self))) if array.ndim else iter(array)

    def __contains__(self, item: Any) -> bool:
        return present(item) in self._present

    def __pow__(self, other: Any) -> Any:
        return applied(self._trace, operator.pow, (self, other), {})  # which squares, and takes roots

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        array = self._present
        if type(array) is not np.ndarray or dtype not in (None, array.dtype) or copy:
            return array.__array__(dtype, copy=copy)  # type: ignore[no-any-return]
        # Views of the result keep it, and not the array.
        alias: NDArray = np.lib.stride_tricks.as_strided(array, writeable=array.flags.writeable)
        root = self
        while root._origin is not None:
            root = root._origin
        root._aliases = [item for item in root._aliases if item() is not None] + [weakref.ref(alias)]
        return alias

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, /, *inputs: Any, **kwargs: Any) -> Any:
        targets = inputs[:1] if method == "at" else kwargs.get("out", ())
        return _written(self._trace, getattr(ufunc, method), inputs, kwargs, targets)

    def __array_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        targets = [kwargs.get("out"), *(args[:1] if func.__name__ in CHANGING else ())]
        return _written(self._trace, func, args, kwargs, targets)

    def __copy__(self) -> Any:
        return applied(self._trace, np.copy, (self,), {}) if type(self._present) is np.ndarray else self._present.copy()

    def __deepcopy__(self, memo: object) -> Any:
        return self.__copy__()

    def __reduce__(self) -> Any:
        return self._present.__reduce__()

    def __repr__(self) -> str:
        return repr(self._present)

    def __str__(self) -> str:
        return str(self._present)

    def __format__(self, spec: str) -> str:
        return format(self._present, spec)

    def __bool__(self) -> bool:
        return bool(self._present)

    def __int__(self) -> int:
        return int(self._present)

    def __float__(self) -> float:
        return float(self._present)

    def __complex__(self) -> complex:
        return complex(self._present)

    def __index__(self) -> int:
        return operator.index(self._present)


def _as_traced(trace: CreatingTrace, values: NDArray) -> TracedArray:
    """Returns an array of the program with values of this process; one that is filled with a number is made there."""
    values = as_operand(values, "an array that a traced function creates")
    items = np.ascontiguousarray(values).reshape(-1, 1)
    with trace.present():
        if values.size > 1 and (items.view(np.uint8) == items[0].view(np.uint8)).all():
            array: TracedArray = trace.functions.full(values.shape, items[0, 0], values.dtype)
        else:
            array = trace.value(values, "an array that it creates")
    array._is_ndarray = not values.ndim
    return array


def _written(
    trace: CreatingTrace,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    targets: Iterable[Any],
) -> Any:
    """Returns the result of a function that writes to some of its arguments, which become arrays of the program."""
    if is_of_program((*args, *kwargs.values())):
        for target in targets:
            if type(target) is CreatedArray:
                target._become_traced()
    return applied(trace, function, args, kwargs)


def applied(trace: CreatingTrace, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns the result of a function; its arrays of this process are such that the traced function creates."""

    def run() -> Any:
        return function(*present(tuple(args)), **{name: present(value) for name, value in kwargs.items()})

    return _created(trace, run(), _arrays_in((*args, *kwargs.values())), run)


def _created(trace: CreatingTrace, result: Any, sources: Sequence[Any], renew: Callable[[], Any]) -> Any:
    """Returns the result of a function with its arrays of this process as such that the traced function creates.

    Args:
        trace: the trace.
        result: the result.
        sources: the arrays among the operands, of which it may have views.
        renew: returns the result again.
    """
    if type(result) in (tuple, list):
        items = [_created(trace, item, sources, functools.partial(_item, renew, i)) for i, item in enumerate(result)]
        return type(result)(items)
    for source in sources:
        if type(source) is CreatedArray and result is source._values:
            return source
    if type(result) is not np.ndarray or not _is_of_numbers(result):
        return result
    for source in sources:
        values = source._values if type(source) is CreatedArray else source
        if type(values) is np.ndarray and np.may_share_memory(result, values):
            return result if values is source else CreatedArray(trace, result, source, renew)
    return CreatedArray(trace, result) if _owner_of(result).flags.owndata else result


def _item(renew: Callable[[], Any], index: int) -> Any:
    return renew()[index]


def _is_of_numbers(array: NDArray) -> bool:
    return array.dtype.kind in _NUMBERS or (array.dtype.kind == "V" and array.dtype.names is None)


def _owner_of(array: NDArray) -> NDArray:
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def _arrays_in(items: Iterable[Any]) -> list[Any]:
    """Returns the arrays of this process and the created ones among items, and those of lists in them."""
    arrays: list[Any] = []
    for item in items:
        if type(item) in (CreatedArray, np.ndarray):
            arrays.append(item)
        elif type(item) in (tuple, list):
            arrays += _arrays_in(item)
    return arrays


def present(item: Any) -> Any:
    """Returns an item, and those of lists in it, with what created arrays are now in their place."""
    if type(item) is CreatedArray:
        return item._present
    return type(item)(map(present, item)) if type(item) in (tuple, list) else item


def is_of_program(item: Any) -> bool:
    """Returns whether an item, or one of a list in it, is an array or a number of the program."""
    if type(item) in (tuple, list):
        return any(map(is_of_program, item))
    if type(item) is CreatedArray:
        return type(item._present) is not np.ndarray
    return is_remote(item) or getattr(type(item), "_is_traced", False)
