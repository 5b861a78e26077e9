"""Arrays that stay on the mesh: their state, and what `print` and `repr` show of it."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, Protocol, Self
from xml.etree.ElementTree import Element

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.array_protocols import ArrayProtocols
from shardcall._src.device_arrays.array_version import ArrayBase, ArrayVersion, Owner, lost_error
from shardcall._src.device_arrays.missing_attributes import unchangeable_attribute, unsupported
from shardcall._src.device_arrays.numpy_metadata import ArrayFlags
from shardcall._src.device_arrays.shown_values import ShownValues, limit_s
from shardcall._src.device_arrays.views import ViewStep, axes_in_order, index_step, layout_of, with_step
from shardcall._src.device_arrays.write_locks import WriteLock, views_lock
from shardcall._src.display.drawing import Drawing, element
from shardcall._src.display.progress import Progress
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline
from shardcall_core.functions.indexing import basic_index, is_basic
from shardcall_core.markup import page
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.blocks import block_grid
from shardcall_core.types.errors import ShardcallError
from shardcall_core.types.sizes import human
from shardcall_core.types.tracebacks import calling_frame, is_assigning, shortened

_AS_STRIDED = getattr(np.lib.stride_tricks.as_strided, "__code__", None)  # which no protocol of NumPy redirects
_MAX_SHARED_STEPS = 8  # the last ones to a view, whose values others share
_MAX_SHUFFLED = 100  # elements that numpy.random.shuffle swaps, each swap in four calls
_MAX_SHOWN = 20_000  # characters of values in a notebook
MAX_STRIDED_BYTES = 64 << 20
"""The size of the largest array of which ``numpy.lib.stride_tricks.as_strided`` takes views."""
SHORT_TIMEOUT_S = 10.0
"""The timeout of calls without arrays by default, in seconds."""


class SupportsRemoteArray(Protocol):
    """An object that represents an array on the mesh."""

    def __remote_array__(self) -> RemoteArray | None:
        """Returns the array; None if the object has values of this process instead."""


@shortened
class RemoteArray(ArrayProperties, ArrayProtocols):
    """An array that stays on the mesh between calls, an operand of any kernel.

    Made by `Client.put`, `Client.submit` and by calls with ``keep=True``. It stays until `delete`, the end of a
    ``with`` block, or `Client.close`; the client deletes the array of a dropped object soon afterwards. Properties need
    no round trip; ``numpy.asarray`` and `get` copy the values. Slices, transposes and the like are views as in NumPy: a
    write to one is seen in all, and it gives the array on the server another handle. A copy (`copy.copy`,
    `copy.deepcopy`) has values of its own; pickling is refused.
    """

    _owner: Owner
    _entered_by: int
    _store: ArrayBase
    _is_traced = False
    _is_locked = False  # against writes, by the caller
    _is_ndarray = False  # where NumPy's result without axes is an array and no scalar
    _steps: tuple[ViewStep, ...] = ()  # from the base to the view that it is
    _shown: ShownValues | None = None
    _computed: tuple[ArrayVersion, ArrayVersion] | None = None  # of a view: the base's values, and its own
    # Of a small mask: the values of its base, its steps, the number of its elements that are true, and their indices.
    _nonzeros: tuple[ArrayVersion, tuple[ViewStep, ...], int, Any] | None = None
    _element_of: weakref.ref[ArrayBase] | None = None  # of an element that is no view: the array that it was read from

    def __init__(self, version: ArrayVersion) -> None:
        # The owner keeps the client, and a server of `local`, open.
        self.__dict__.update(_owner=version.owner, _entered_by=0, _store=ArrayBase(version, self))
        version.base = weakref.ref(self._store)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        elif not self._set(name, value):
            raise unchangeable_attribute(self, name)

    @classmethod
    def _of(cls, version: ArrayVersion) -> Self:
        """Returns an array with the values of another one, and a base of its own."""
        array = cls.__new__(cls)
        array.__dict__.update(_owner=version.owner, _entered_by=0, _store=ArrayBase(version, array))
        return array

    @property
    def _version(self) -> ArrayVersion:
        """The present values; those of a view are computed if they were not."""
        steps, version = self._steps, self._store.current  # in this sequence, see `_located`
        return self._view_version() if steps else version

    @property
    def _seen_version(self) -> ArrayVersion:
        """The values that this client has seen last, which differ from the present ones for arrays with names only."""
        return self._view_version() if self._steps else self._store.version

    @property
    def _located(self) -> tuple[ArrayBase, tuple[ViewStep, ...]]:
        """The base and the steps from it, of one moment: another thread may change both."""
        while True:
            steps, base = self._steps, self._store
            if self._steps is steps:
                return base, steps

    @property
    def _with_padding(self) -> Self | None:
        """The array of which this view is all but the padding, as of `ArrayBase.padded_axis`; None if it is none."""
        base, steps = self._located
        axis = base.padded_axis
        if axis is None or len(steps) != 1 or not steps[0].is_front_of(base.type.shape, axis):
            return None
        return self._of(base.current)

    def _view_version(self) -> ArrayVersion:
        base, steps = self._located
        version, computed = base.version, self._computed
        check_there(self, "the array")
        if computed is not None and computed[0] is version and not computed[1].lost:
            value = computed[1]
        else:
            value = self._computed_from(base, version, steps)
            self._computed = version, value
        is_written = version.earlier is not None  # which may be undone
        is_kept = base.name or is_written or base.keeps_padding
        if not is_kept and base.is_only_of(self) and self._is_writeable:
            new = ArrayBase(value, self, layout_of(self))
            new.write_lock = base.write_lock  # which another thread may wait for
            with views_lock():  # nobody else sees a write, and the base need not be kept
                if self._store is base and base.is_only_of(self) and not base.writers and base.version is version:
                    self._become(new)
                    value.base = weakref.ref(new)
        return value

    def _become(self, base: ArrayBase, steps: tuple[ViewStep, ...] = ()) -> None:
        """Makes the object one of another base, in one step: this thread may be interrupted."""
        self.__dict__.update(_store=base, _steps=steps, _computed=None)

    def _computed_from(self, base: ArrayBase, version: ArrayVersion, steps: tuple[ViewStep, ...]) -> ArrayVersion:
        """Returns the values of a view.

        Args:
            base: its base.
            version: the values of that.
            steps: the steps to the view.
        """
        value, computed, shared = version, 0, max(len(steps) - _MAX_SHARED_STEPS, 0)
        for count in range(len(steps), shared, -1):
            if (stored := base.value(version, steps[:count])) is not None:
                value, computed = stored, count
                break
        for count, step in enumerate(steps[computed:], computed + 1):
            if not step.is_all_of(value.type.shape):
                value = self._after(step, value)
                if count > shared:
                    base.add_value(version, steps[:count], value)
        return value

    def _after(self, step: ViewStep, before: ArrayVersion) -> ArrayVersion:
        """Returns the values of a view of one step from others."""
        arguments = dict(step.arguments)
        recorded = None if self._is_traced else self._owner._record(step.name, before, *step.operands, **arguments)
        if recorded is not None:
            return recorded
        result = self._functions.compute(step.name, self._of(before), *step.operands, **arguments)
        array = find_remote_array(result)
        assert array is not None
        return array._version

    def _transposed_from(self) -> Self | None:
        """Returns the array of which this view swaps the last two axes; None if it is no such view."""
        base, steps = self._located
        if not steps or steps[-1].name != "transpose":
            return None
        ndim = self.ndim
        axes = dict(steps[-1].arguments).get("axes") or range(ndim)[::-1]
        if [axis % ndim for axis in axes] != [*range(ndim - 2), ndim - 1, ndim - 2]:
            return None
        check_there(self, "the array")
        return self._of(self._computed_from(base, base.current, steps[:-1]))

    def _view(self, step: ViewStep) -> Self:
        """Returns a view of this array.

        Args:
            step: the step to it.
        """
        if self._why_lost:
            check_there(self, "the array")
        view = type(self).__new__(type(self))
        is_ndarray = self._is_ndarray or step.name == "getitem"
        view.__dict__.update(_owner=self._owner, _entered_by=0, _is_ndarray=is_ndarray)
        if self._is_locked:
            view._is_locked = True
        with views_lock():
            base, steps = self._located
            view.__dict__.update(_store=base, _steps=with_step(base.type, steps, step))
            base.add_view(view)
        return view

    def __copy__(self) -> Self:
        present = self._owner._present(self)
        if present._store.name and not present._store.writers:  # whose values other clients may replace and delete
            return type(self)._of(self._owner._copy_named(present)._version)
        version = present._version
        copied: Self = present._of(version)
        version.add_sharers(present, copied)
        return copied

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def copy(self, order: str = "C") -> Self:
        """Returns a copy on the mesh; that of an array with a name is complete before a later write."""
        if self._owner._present(self)._store.name:
            copied = self.__copy__()
            return copied if axes_in_order(copied, order) is None else copied.copy(order)
        return super().copy(order)

    def __remote_array__(self) -> RemoteArray:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a RemoteArray belongs to its client and cannot be pickled; pickle its .handle, which a client with the "
            "same token takes while this object is kept, or its values, array.get()"
        )

    @shortened
    def _settled(self, deadline: Deadline | None = None) -> MeshPlacement:
        return self._seen_version.settled(deadline)

    def progress(self, *, timeout: float | None = 10.0) -> Progress | None:
        """Returns the progress of the call that makes the array, or of the call that this one waits for.

        It asks the server, in a round trip, at most ten times a second. Calls that were recorded are sent first.

        Args:
            timeout: seconds for the answer; None for the server's maximum.

        Returns:
            The progress; None once the call is answered, also with an error.

        Raises:
            ShardcallError: if the server cannot be asked.
        """
        pending = None if self._why_lost else self._seen_version.pending
        if pending is None or pending.is_done:
            return None
        pending.begin()
        return self._owner._progress_of(pending, timeout)

    def get(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> NDArray:
        """Copies the values from the mesh, after the call of an array that `Client.submit` returned.

        Args:
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if it is no longer there.
            ShardcallError: of the class that fits.

        Example:
            >>> (client.put(np.arange(3.0)) + 1).get()
            array([1., 2., 3.])
        """
        if (present := self._owner._present(self)) is not self:
            present._refuse_values()  # a later call of the traced function would not read them again
        store = self._store if self._element_of is None else self._element_of()
        if store is not None:
            store.add_read(is_of_one_element=self.size == 1 and self.nbytes < store.type.nbytes)
        if (padded := self._with_padding) is not None:  # a program would be compiled for each length
            return np.ascontiguousarray(padded.get(timeout=timeout)[tuple(map(slice, self.shape))])
        return self._owner.get(self, timeout=timeout)

    def delete(self, *, timeout: float | None = SHORT_TIMEOUT_S) -> None:
        """Deletes the array from the mesh; may be called again.

        An array that a copy shares stays until the last object of it is deleted or dropped.

        Args:
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.

        Example:
            >>> client.put(np.arange(3.0)).delete()
        """
        if not self._why_lost:
            self._owner.delete(self, timeout=timeout)

    def __enter__(self) -> Self:
        self._entered_by = os.getpid()
        return self

    def __exit__(self, error_type: object, error: object, trace: object, /) -> None:
        if self._entered_by != os.getpid():  # the block belongs to the process that forked this one
            return
        with contextlib.suppress(ShardcallError):  # its lease deletes it, and an error of the block matters more
            self.delete()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        if copy is False:
            raise ValueError("the values of a RemoteArray are on the mesh and cannot be had without a copy")
        if (present := self._owner._present(self)) is not self:
            array: NDArray = present.__array__(dtype)  # which refuses it
            return array
        values = self._get_with_base() if calling_frame().f_code is _AS_STRIDED else self._values_of_block()
        if values is None:
            self._owner._copied(self)
            values = self.get()
        return np.asarray(values, dtype=dtype)

    def _get_with_base(self) -> NDArray:
        """Copies the array that this one is a view of, since strides of the caller may lead to all its elements.

        Returns:
            The view of the copy.

        Raises:
            TypeError: for a view of a large array, and of one that is no longer there.
        """
        base, is_view = self._store, bool(self._steps)
        if base.was_view or (is_view and base.type.nbytes > MAX_STRIDED_BYTES):
            raise TypeError(
                f"numpy.lib.stride_tricks.as_strided of a view copies the array that it is a view of, which is of at "
                f"most {human(MAX_STRIDED_BYTES)} and still in use, and this one is "
                f"{'no longer' if base.was_view else f'of {human(base.type.nbytes)}'}; "
                "pass array.get(), with strides of that"
            )
        array = unshaped_array(base) if is_view else self
        self._owner._copied(array)
        values: NDArray = np.ascontiguousarray(array.get())
        for step in self._steps:
            values = step.of_layout(values)
        return values

    def _get_implicitly(self) -> NDArray | None:
        present: object = self._owner._present(self)
        if present is not self:
            return None
        if (values := self._values_of_block()) is not None:
            return values
        try:
            self._owner._copied(self)
        except TypeError:
            return None
        return self.get()

    def _values_of_block(self) -> NDArray | None:
        """Returns a copy of the values of a row that a loop yielded, with the rows that follow; None for others."""
        if self._copied_with is None or self._why_lost:
            return None
        blocks, index = self._copied_with
        values: NDArray | None = blocks.row(index)
        return None if values is None else values.copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        if type(key) is int and isinstance(value, RemoteArray) and self.shape and key == self.shape[0] - 1:
            self._check_not_shuffled(value)
        with self._writing():
            if not self._is_part(key, value):  # which ``array[key] += b`` has changed
                self._assign(self._owner.xp.setitem(self, key, value))

    def _check_not_shuffled(self, value: RemoteArray) -> None:
        """Checks that the last row is not set to another one by `numpy.random.shuffle`, which begins so.

        It swaps rows one by one, and loses those that are views.

        Raises:
            TypeError: if it is.
        """
        is_row = value._store is self._store
        is_element = value._element_of is not None and value._element_of() is self._store
        if not (is_row or (is_element and self.shape[0] > _MAX_SHUFFLED)) or is_assigning(calling_frame()):
            return
        raise TypeError(
            f"numpy.random.shuffle swaps one element after the other, and the array is of shape {self.shape}; give an "
            f"array of one axis and at most {_MAX_SHUFFLED} elements, or write "
            "array[...] = array[rng.permutation(len(array))]"
        )

    def _is_part(self, key: Any, value: Any) -> bool:
        """Returns whether a value is the view of this array at an index."""
        if not isinstance(value, RemoteArray) or value._store is not self._store or not value._steps:
            return False
        items = key if isinstance(key, tuple) else (key,)
        if not all(map(is_basic, items)):
            return False
        part = self[key]
        return isinstance(part, RemoteArray) and part._store is self._store and part._steps == value._steps

    @property
    def _write_lock(self) -> WriteLock:
        return self._store.write_lock

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keeps other threads from writing to the array, from the reading of its values to `_assign`.

        Raises:
            ValueError: for a view that NumPy does not write to.
        """
        if not self._is_writeable:
            raise ValueError("assignment destination is read-only")
        with self._write_lock.of_process():
            is_traced = self._owner._present(self) is not self  # so that its values are those of a later call
            is_alone = not self._store.keeps_padding and self._store.is_only_of(self)
            if not is_traced and (self._store.name or is_alone):
                _ = self._version  # the present values of a name; a view that nobody shares becomes an array
            with views_lock():
                base = self._store
                base.writers += 1
            try:
                yield
            finally:
                base.writers -= 1

    def _assign(self, result: Any) -> None:
        new = find_remote_array(result)
        assert new is not None
        if new._is_traced and not self._is_traced:
            self._owner._present(self)._assign(new)
        elif self._is_front_like(new) and (padded := new._with_padding) is not None:
            self._store.replace(padded._version)
        else:
            self._write(new._version)

    def _is_front_like(self, other: RemoteArray) -> bool:
        """Returns whether the array is alone with its padding, and another one has as much behind as many elements."""
        base, (others, steps) = self._store, other._located
        is_padded = base.padded_axis is not None and base.padded_axis == others.padded_axis
        return is_padded and self._steps == steps and base.type == others.type and base.is_only_of(self)

    def _write(self, version: ArrayVersion) -> None:
        """Replaces the values of the array, and so those of its base and all other views of that."""
        base, steps, functions = self._store, self._steps, self._functions
        if version.type != self.type:
            raise AssertionError(f"{version.type} is written to {self.type}")
        new, before = version, base.version
        values = [self._computed_from(base, before, steps[:count]) for count in range(len(steps))]
        for step in reversed(steps):
            result = find_remote_array(step.backward(functions, self._of(values.pop()), self._of(new)))
            assert result is not None
            new = result._version
        if base.name:
            self._owner._write_named(base, new)
        base.replace(new)
        if steps:
            self._computed = new, version
            base.add_value(new, steps, version)

    @property
    def type(self) -> Array:
        """The shape and element type."""
        steps = self._steps
        return steps[-1].type if steps else self._store.type

    @property
    def committed(self) -> bool:
        """True if it was put, created with a mesh or a spec, or computed from such an array, as in JAX.

        An array that is not committed moves to the devices of one that is, if a call takes both.
        """
        return self._store.version.committed

    @property
    def lost(self) -> bool:
        """True if this client has deleted it or was closed; the server may lose it otherwise."""
        return bool(self._why_lost)

    @property
    def _why_lost(self) -> str:
        """The reason that the array is gone, as `ArrayVersion.lost`."""
        return self._store.version.lost

    @property
    def base(self) -> RemoteArray | None:
        """The array that this one is a view of; None if it is none, and where nobody else has that array."""
        if not self._steps or self._store.is_only_of(self):
            return None
        array = base_array(self._store, type(self))
        return None if array is self else array

    @property
    def flags(self) -> ArrayFlags:
        """The flags that the array would have in NumPy, of which ``writeable`` can be set."""
        return ArrayFlags(
            layout_of(self), self.setflags, is_view=self.base is not None, is_writeable=self._is_writeable
        )

    def setflags(self, *, write: bool | None = None, align: bool | None = None, uic: bool | None = None) -> None:
        """Sets whether this object, and views of it from now on, may be written to, as ``numpy.ndarray.setflags``.

        Args:
            write: whether it may; None to leave it.
            align: True or None.
            uic: False or None.

        Raises:
            ValueError: for ``write=True`` and a view that NumPy does not write to, for ``align`` and ``uic``.
        """
        if uic or not (align is None or align):
            raise ValueError("align=False and uic=True are for the memory of a process; leave them out")
        if write is None:
            return
        base = None if self._store.array is None or not self._steps else self._store.array()
        if write and (self._has_read_only_step or (base is not None and base is not self and base._is_locked)):
            raise ValueError("cannot set WRITEABLE flag to True of this array")
        self._is_locked = not write

    @property
    def _is_writeable(self) -> bool:
        return not self._is_locked and not self._has_read_only_step

    @property
    def _has_read_only_step(self) -> bool:
        return any(step.is_read_only for step in self._steps)

    @property
    def strides(self) -> tuple[int, ...]:
        """The bytes between elements along each axis that the array would have in NumPy."""
        return layout_of(self).strides

    @property
    def flat(self) -> FlatElements:
        """The elements in row-major order, as ``numpy.ndarray.flat``; a write to them changes the array."""
        return FlatElements(self)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        """Returns another object of the array's memory, as ``numpy.ndarray.view``.

        With another element type, which libraries ask for to store the bytes, it returns a copy in this process, which
        cannot be written to; it is counted as an implicit copy.

        Args:
            args: its element type, if there is one.
            kwargs: that of ``dtype=``.

        Raises:
            TypeError: for a class of arrays, and for another element type if the client refuses implicit copies.
        """
        np.empty(0, self.dtype).view(*args, **kwargs)  # raises NumPy's errors
        requested = [*args, *kwargs.values()]
        if any(isinstance(item, type) and issubclass(item, np.ndarray) for item in requested):
            raise unsupported("numpy.ndarray.view with a class of arrays")
        for dtype in requested:
            if dtype is not None and np.dtype(dtype) != self.dtype:
                values = np.ascontiguousarray(self.__array__()).view(dtype)
                values.flags.writeable = False
                return values
        step = index_step(basic_index(self.shape, ...), self.dtype)
        return self._view(step)

    def _set(self, name: str, value: Any) -> bool:
        """Sets an attribute as NumPy does; returns False for those that cannot be set."""
        if name == "shape":
            shaped = self._functions.reshape(self, value)
            if shaped._store is not self._store:
                raise AttributeError("incompatible shape for in-place modification; use reshape() for a copy")
            self._become(self._store, shaped._steps)
            self._copied_with = None
        elif name == "flat":
            self.flat[:] = value
        elif name in ("real", "imag"):
            if name == "imag" and self.dtype.kind != "c":
                raise TypeError("array does not have imaginary part to set")
            getattr(self, name)[...] = value
        else:
            return False
        return True

    @property
    def _is_scalar(self) -> bool:
        return not self.ndim and not self._is_ndarray and (not self._steps or self._store.is_only_of(self))

    def flatten(self, order: str = "C") -> Self:
        """Returns the elements in one axis, in the order of `ravel`, as a copy."""
        return self.ravel(order).__copy__()

    @property
    def _functions(self) -> Any:
        return self._owner.xp

    def _state(self) -> str:
        """Returns ``"pending"`` or ``"failed"`` for an array of a call that is not done, empty for any other."""
        pending = self._seen_version.pending
        if pending is None or (pending.is_done and not pending.is_failed):
            return ""
        return "failed" if pending.is_failed else "pending"

    def __repr__(self) -> str:
        """Returns the values, those at the edges of a large array, and a description in a line of its own.

        It waits as `get`, but in an interactive session for 2 s and in a debugger for 0.2 s at most. Of values that are
        not there by then, it shows the description alone.

        Raises:
            ShardcallError: as of `get`, where it waits as `get`.
        """
        wait_s = limit_s(is_display=hasattr(sys, "ps1"))
        values = self._values_text("RemoteArray(", separator=", ", wait_s=wait_s)
        return self._description_alone() if values is None else f"RemoteArray({values})\n{self._placement_line()}"

    def __str__(self) -> str:
        """Returns the values and a description; of an array without axes the number alone.

        It waits as `get`, but in a debugger for 0.2 s at most.

        Raises:
            ShardcallError: as of `get`, where it waits as `get`.
        """
        wait_s = limit_s()
        if not self.shape and wait_s is None and not self._why_lost:
            return super().__str__()
        values = self._values_text(wait_s=wait_s)
        if values is None:
            return self._description_alone()
        return f"{values}\n{self._placement_line()}" if self.shape else values

    def _values_text(self, prefix: str = "", **options: Any) -> str | None:
        if not self._owner._shows_values or self._why_lost or self._owner._present(self) is not self:
            return None
        self._shown = shown = self._shown or ShownValues(self)
        return shown.text(prefix, **options)

    def _description_alone(self) -> str:
        """Returns the description of an array whose values are not shown, and why not."""
        why = self._shown.why_absent if self._shown is not None and not (self._why_lost or self._state()) else ""
        description = self._description()
        return f"{description.removesuffix('>')}; {why}>" if why else description

    def _placement_line(self) -> str:
        return self._description().replace("<RemoteArray ", "<", 1)

    def _description(self) -> str:
        """Returns the type, the placement and the memory of an array, without a round trip."""
        if self._why_lost:
            return f"<RemoteArray {self.type}, {self._why_lost}>"
        if state := self._state():
            return f"<RemoteArray {self.type}, {state}>"
        return f"<RemoteArray {self.type} {self.spec} on {self.mesh.short}, {human(self.device_bytes)}>"

    def _repr_html_(self) -> str:
        """Returns a display for a notebook: values, blocks and the devices that hold them."""
        values = self._values_text(wait_s=limit_s(is_display=True))
        shown = [] if values is None else [page.scrolled(page.text("pre", values, max_characters=_MAX_SHOWN))]
        state = self._state()
        rows = {"values": human(self.nbytes) if shown else f"{human(self.nbytes)}; see .get()"}
        if gone := self._why_lost or state:
            rows = {"state": gone, **rows}
        if state:
            return page.page(f"RemoteArray {self.type}", *shown, page.facts(rows), *self._expected_picture())
        padded = "" if self.padded_shape == self.shape else f", padded to {self.padded_shape}"
        rows["on devices"] = f"{human(self.device_bytes)}{padded}"
        rows["committed"] = "yes" if self.committed else "no: it moves to the devices of another operand"
        picture = page.scrolled(element(self.visualize()))
        return page.page(f"RemoteArray {self.type}", *shown, page.facts(rows), page.beside(picture))

    def _expected_picture(self) -> list[Element]:
        """Returns the blocks that the array will have, if it is pending and the server knows them."""
        version = self._seen_version
        pending = version.pending
        placed = None if pending is None else self._owner._expected_placement(pending, version.index)
        if placed is None:
            return []
        spec = placed.placement.spec
        caption = f"{self.type} {spec} on {placed.mesh.short}, pending"
        drawing = Drawing(caption, block_grid(self.shape, spec, placed.mesh))
        return [page.beside(page.scrolled(element(drawing)))]


class FlatElements:
    """The elements of an array in row-major order; reading copies, and writing changes the array.

    Attributes:
        base: the array.
    """

    def __init__(self, base: RemoteArray) -> None:
        self.base = base

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Any]:
        return iter(self.base.flatten())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self.base.flatten().__array__(dtype, copy)

    def __remote_array__(self) -> RemoteArray:
        """Returns the elements as an array of one axis."""
        return self.base.flatten()

    def copy(self) -> RemoteArray:
        """Returns the elements as an array of one axis."""
        return self.base.flatten()

    def __getitem__(self, key: Any) -> Any:
        return self.base.flatten()[key]

    def __setitem__(self, key: Any, values: Any) -> None:
        with self.base._writing():  # which refuses it before the index does
            self.base.put(np.arange(self.base.size)[key], values)


def find_remote_array(value: object) -> RemoteArray | None:
    """Returns the array on the mesh that a value represents; None if it represents none."""
    # Looked up in the class: faster than a check of the protocol, and mocks have every attribute.
    method: Callable[[object], RemoteArray | None] | None = getattr(type(value), "__remote_array__", None)
    return None if method is None else method(value)


def find_object(version: ArrayVersion) -> RemoteArray:
    """Returns the caller's array that has a version as its values, a new one if there is none."""
    base = None if version.base is None else version.base()
    if base is None or base.version is not version:
        array = RemoteArray._of(version)
        version.base = weakref.ref(array._store)
        version.add_sharers(array)
        return array
    return base_array(base, RemoteArray)


def base_array(base: ArrayBase, array_class: type[RemoteArray]) -> RemoteArray:
    """Returns the array that a base is of, a new object if the caller has none.

    Args:
        base: the base.
        array_class: the class of a new object.
    """
    array: RemoteArray | None = None if base.array is None else base.array()
    if array is None:
        array = array_class.__new__(array_class)
        array.__dict__.update(_owner=base.version.owner, _entered_by=0, _store=base)
        base.array = weakref.ref(array)
    return array


def unshaped_array(base: ArrayBase) -> RemoteArray:
    """Returns the array that a base is of, in the shape of that, which an assignment to the array's may have changed.

    Args:
        base: the base.
    """
    array = base_array(base, RemoteArray)
    if array._steps:
        array = RemoteArray.__new__(RemoteArray)
        array._owner, array._entered_by, array._store = base.version.owner, 0, base
        base.add_view(array)
    return array


def give_up_shared(array: RemoteArray, why: str) -> bool:
    """Makes an array a lost one and returns True, if others of the caller have its values or it is a view of one.

    Args:
        why: the reason that errors of later uses give, as of `mark_lost`.
    """
    if array._steps:
        version = ArrayVersion(array._owner, array._store.version.server, b"", array.type, lost=why)
        array._become(ArrayBase(version, array))
        return True
    version = array._version
    bases = [sharer._store for sharer in version.list_sharers() if not sharer._steps]
    bases += [base] if version.base is not None and (base := version.base()) is not None else []
    if not any(base.version is version for base in bases if base is not array._store):
        return False
    array._store.replace(replace(version, lost=why))
    return True


def mark_lost(array: RemoteArray, why: str) -> None:
    """Sets the reason that errors of later uses give: ``which was deleted``, or with advice ``which …; use …``."""
    array._version.lose(why)


def check_there(array: RemoteArray, field: str) -> None:
    """Checks that this client has not deleted an array.

    Raises:
        ArrayLostError: if it has.
    """
    if array._why_lost:
        raise lost_error(array.type, array._why_lost, field)
