"""Writes of traced functions to arrays of their callers, which follow a call of the program."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shardcall._src.device_arrays.array_version import ArrayBase
from shardcall._src.device_arrays.remote_array import RemoteArray, unshaped_array
from shardcall._src.device_arrays.views import ViewStep
from shardcall._src.traced.trace import Trace, as_view
from shardcall._src.traced.traced_array import TracedArray
from shardcall_core.types.errors import ArrayLostError, TracingError


@dataclass(frozen=True)
class WriteTarget:
    """An array of the caller that a traced function writes to.

    Attributes:
        leaf: the index of the argument that it is; None if it is none.
        is_base: whether it is the array of which that argument is a view.
        base: what the function refers to.
    """

    leaf: int | None = None
    is_base: bool = False
    base: weakref.ref[ArrayBase] | None = None

    def array(self, objects: Sequence[Any]) -> Any:
        """Returns the array.

        Args:
            objects: the arguments of a call.

        Raises:
            ArrayLostError: if the caller has dropped it.
        """
        if self.leaf is not None:
            item = objects[self.leaf]
            return unshaped_array(item._store) if self.is_base else item
        base = None if self.base is None else self.base()
        if base is None:
            raise ArrayLostError("an array that the function writes to is gone")
        return unshaped_array(base)


class Alias(NamedTuple):
    """A result of a function that is an array which it writes to, or a view of it.

    Attributes:
        write: the index of that array among those written to.
        steps: the steps to the view.
    """

    write: int
    steps: tuple[ViewStep, ...]

    def object(self, array: Any) -> Any:
        """Returns the array or the view.

        Args:
            array: the array that was written to.
        """
        for step in self.steps:
            array = step.of_layout(array) if isinstance(array, np.ndarray) else array._view(step)
        return array


class Arguments:
    """The arrays among the arguments of a traced function, and what they are in the program.

    Arguments may be views of one array, or the function may refer to it, too: a write to one is then seen in the
    others. These are views of one input.

    Args:
        objects: the caller's objects, the leaves of the arguments.
        bases: the bases of the arrays that the function refers to.
    """

    def __init__(self, objects: Sequence[Any], bases: set[ArrayBase]) -> None:
        self._objects = objects
        self._shared: dict[int, int | None] = {}  # of arguments that share a base, the first; None for the function's
        by_base: dict[ArrayBase, list[int]] = {}
        for i, item in enumerate(objects):
            if isinstance(item, RemoteArray):
                by_base.setdefault(item._store, []).append(i)
        for base, indices in by_base.items():
            if base in bases or len(indices) > 1:
                self._shared.update(dict.fromkeys(indices, None if base in bases else indices[0]))

    @property
    def key(self) -> Hashable:
        """The part of a program's key: the arguments that share arrays, and how; those without axes that are arrays."""
        shared = tuple(
            (i, first, item._steps, None if first is not None else item._store.serial)
            for i, first in self._shared.items()
            for item in self._objects[i : i + 1]
        )
        return shared, tuple(i for i, item in enumerate(self._objects) if _is_array_without_axes(item))

    def traced(self, trace: Trace, index: int, argument_type: Any) -> TracedArray:
        """Returns an argument as an array of a program.

        Args:
            trace: the trace.
            index: its index.
            argument_type: its type.
        """
        item = self._objects[index]
        if index not in self._shared:
            tracer = trace.argument(index, argument_type)
            tracer._is_ndarray = _is_array_without_axes(item)
            return tracer
        first = self._shared[index]
        if first is None:
            return trace.stand_in(item)
        base = trace.base_of_argument(first, item._store)
        return as_view(base, item)

    def targets(self, trace: Trace, tracers: Mapping[int, TracedArray]) -> Iterator[tuple[WriteTarget, TracedArray]]:
        """Yields the arrays that a function may have written to, each with what it is in the program.

        Args:
            trace: the trace.
            tracers: the arguments in the program.
        """
        for i, tracer in tracers.items():
            if i not in self._shared:
                yield WriteTarget(i), tracer
        firsts = {self._objects[i]._store: i for i in self._shared.values() if i is not None}
        for base, tracer in trace.stand_ins.items():
            if base in firsts:
                yield WriteTarget(firsts[base], is_base=True), tracer
            else:
                yield WriteTarget(base=weakref.ref(base)), tracer


def _is_array_without_axes(item: Any) -> bool:
    """Returns whether an argument of no axes is an array, which an augmented assignment changes, and no scalar."""
    if isinstance(item, RemoteArray):
        return not item.ndim and not item._is_scalar
    return isinstance(item, np.ndarray) and not item.ndim


def check_targets(name: str, writes: Sequence[WriteTarget], objects: Sequence[Any], paths: Sequence[str]) -> None:
    """Checks that the arrays that a function writes to can be written to.

    Args:
        name: the name of the function.
        writes: the arrays.
        objects: the arguments of a call.
        paths: their names.

    Raises:
        TracingError: for an argument that is no array, and for one of this process that shares memory with another.
        ValueError: for an array that is read-only.
    """
    for target in writes:
        if target.leaf is None:
            continue
        item = objects[target.leaf]
        if isinstance(item, RemoteArray):
            if not item._is_writeable:
                raise ValueError("assignment destination is read-only")
        elif not isinstance(item, np.ndarray):
            raise TracingError(
                f"{name} changes its argument {paths[target.leaf]}, a {type(item).__name__}, which its caller would "
                "not see; pass an array, or begin with a copy and return it"
            )
        elif not item.flags.writeable:
            raise ValueError("assignment destination is read-only")
        else:
            _check_alone(name, target.leaf, objects, paths)


def _check_alone(name: str, leaf: int, objects: Sequence[Any], paths: Sequence[str]) -> None:
    """Checks that an array of this process that a function writes to shares no memory with another argument."""
    for other, item in enumerate(objects):
        if other != leaf and isinstance(item, np.ndarray) and np.may_share_memory(item, objects[leaf]):
            raise TracingError(
                f"{name} changes its argument {paths[leaf]}, which may share memory with its argument {paths[other]}; "
                "put the array on the mesh with client.put and pass views of that, or pass a copy"
            )


def write(array: Any, value: RemoteArray) -> None:
    """Writes the values of a result to an array of the caller; those for one of this process are copied from the mesh.

    Args:
        array: the array.
        value: the result.
    """
    if isinstance(array, RemoteArray):
        with array._writing():
            array._write(value._version)
    else:
        array[...] = value.get()
