"""Functions of NumPy that describe arrays on the mesh by their types, or show and save copies of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.views import layout_of
from shardcall_core.types.arrays import NDArray

_LONG_NAMES = {"O": "OWNDATA", "W": "WRITEABLE", "A": "ALIGNED", "X": "WRITEBACKIFCOPY"}


class ArrayFlags:
    """The flags that an array on the mesh would have in NumPy, of which ``writeable`` can be set.

    Args:
        layout: its memory layout, as `views.layout_of`.
        setflags: the method of the array.
        is_view: whether it is a view.
        is_writeable: whether it may be written to.
    """

    def __init__(self, layout: NDArray, setflags: Callable[..., None], *, is_view: bool, is_writeable: bool) -> None:
        self._flags = layout.flags
        self._setflags = setflags
        self._others = {"OWNDATA": not is_view, "WRITEABLE": is_writeable, "ALIGNED": True, "WRITEBACKIFCOPY": False}

    def __getattr__(self, name: str) -> bool:
        if name.upper() in self._others and name.islower():
            return self._others[name.upper()]
        return bool(getattr(self._flags, name))

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        elif name == "writeable":
            self._setflags(write=bool(value))
            self._others["WRITEABLE"] = bool(value)
        else:
            raise AttributeError(f"{name} of an array on the mesh cannot be set", name=name, obj=self)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, _LONG_NAMES.get(name, name).lower(), value)

    def __getitem__(self, name: str) -> bool:
        long = _LONG_NAMES.get(name, name)
        return self._others[long] if long in self._others else self._flags[name]  # type: ignore[index]  # takes names

    def __repr__(self) -> str:
        names = ("C_CONTIGUOUS", "F_CONTIGUOUS", *self._others)
        return "".join(f"  {name} : {self[name]}\n" for name in names)


def _typed(item: Any) -> Any:
    """Returns an array of this process with the shape and the element type of one on the mesh, without its memory."""
    return np.broadcast_to(np.zeros((), item.dtype), item.shape) if isinstance(item, ArrayProperties) else item


def _by_type(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: function(*map(_typed, args), **{key: _typed(item) for key, item in kwargs.items()})


def _by_copies(function: Callable[..., Any]) -> Callable[..., Any]:
    def copied(item: Any) -> Any:
        return np.asarray(item) if hasattr(type(item), "__remote_array__") else item

    return lambda *args, **kwargs: function(*map(copied, args), **{key: copied(item) for key, item in kwargs.items()})


def _in_memory(function: Callable[..., bool]) -> Callable[..., bool]:
    def share(a: Any, b: Any, /, max_work: Any = None) -> bool:
        arrays = [getattr(item, "__remote_array__", lambda item=item: item)() for item in (a, b)]
        bases = [getattr(item, "_store", None) for item in arrays]
        if bases[0] is None or bases[0] is not bases[1]:
            return False
        return function(*map(layout_of, arrays), **({} if max_work is None else {"max_work": max_work}))

    return share


def _min_scalar_type(a: Any, /) -> np.dtype[Any]:
    return np.min_scalar_type(_typed(a) if np.shape(a) else np.asarray(a))  # NumPy's depends on the value of a scalar


def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Broadcasts items without numbers, such as None, in this process; NotImplemented if there are none.

    Libraries broadcast their optional arguments together with arrays.
    """
    del subok
    items = [item if hasattr(type(item), "__remote_array__") else np.asarray(item) for item in args]
    if not any(isinstance(item, np.ndarray) and item.dtype.kind in "OUS" for item in items):
        return NotImplemented
    shape = np.broadcast_shapes(*(getattr(item, "shape", ()) for item in items))
    return tuple(np.broadcast_to(item, shape) for item in items)


DESCRIBING: Mapping[Callable[..., Any], Callable[..., Any]] = {
    **{
        function: _by_type(function)
        for function in (
            np.common_type,
            np.diag_indices_from,
            np.einsum_path,
            np.tril_indices_from,
            np.triu_indices_from,
        )
    },
    **{
        function: _by_copies(function)
        for function in (
            *(np.array2string, np.array_repr, np.array_str),
            *(np.save, np.savetxt, np.savez, np.savez_compressed),
        )
    },
    np.may_share_memory: _in_memory(np.may_share_memory),
    np.shares_memory: _in_memory(np.shares_memory),
    np.min_scalar_type: _min_scalar_type,
    np.broadcast_arrays: _broadcast_arrays,
}
"""Replacements of functions of NumPy; those that show or save values make copies, which are counted."""
