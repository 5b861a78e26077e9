"""Arrays that stay on the mesh."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, Protocol, Self

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.array_protocols import ArrayProtocols
from shardcall._src.device_arrays.array_version import ArrayVersion, Owner, PendingResult, ServerIdentity
from shardcall._src.device_arrays.missing_attributes import unchangeable_attribute
from shardcall._src.device_arrays.views import finish_write, is_contiguous, is_view, note_lost_write
from shardcall._src.display.drawing import element
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline
from shardcall_core.markup import page
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.arrays import NDArray
from shardcall_core.types.errors import ArrayLostError, InvalidOperandError, ShardcallError, TracingError
from shardcall_core.types.sizes import human
from shardcall_core.types.tracebacks import shortened

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
    no round trip; ``numpy.asarray`` and `get` copy the values. ``array[key] = y`` makes the object stand for a new
    array, with another handle. A copy (`copy.copy`, `copy.deepcopy`) is another object of the same array, which keeps
    its values after such an assignment; pickling is refused.
    """

    _is_traced = False
    _is_ndarray = False  # where NumPy's result without axes is an array and no scalar
    _is_contiguous = True  # of a view: whether reshape makes another view of it in NumPy
    _bases: tuple[weakref.ref[RemoteArray], ...] = ()  # the arrays that it is a view of, the nearest first

    def __init__(self, version: ArrayVersion) -> None:
        self._owner = version.owner  # keeps the client, and a server of `local`, open
        self._entered_by = 0
        self._become(version)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_"):
            raise unchangeable_attribute(self, name)
        object.__setattr__(self, name, value)

    @classmethod
    def _of(cls, version: ArrayVersion) -> Self:
        """Returns another object of a version."""
        array = cls.__new__(cls)
        array._owner, array._version, array._entered_by = version.owner, version, 0
        return array

    def _become(self, version: ArrayVersion) -> None:
        """Makes the object stand for another version, and the version's handle for the object."""
        self._version = version
        version.object = weakref.ref(self)

    def __copy__(self) -> Self:
        version = self._version
        copied = self._of(version)
        version.add_sharers(self, copied)
        return copied

    def __deepcopy__(self, memo: object) -> Self:
        return self.__copy__()

    def __remote_array__(self) -> RemoteArray:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a RemoteArray belongs to its client and cannot be pickled; pickle its .handle, which a client with the "
            "same token takes while this object is kept, or its values, array.get()"
        )

    @shortened
    def _settled(self, deadline: Deadline | None = None) -> MeshPlacement:
        version = self._version
        pending = version.pending  # read first: another thread may set both
        if version.placed is None:
            assert pending is not None
            version.placed = pending.wait(deadline)
            version.pending = None
        return version.placed

    def get(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> NDArray:
        """Copies the values from the mesh, after the call of an array that `Client.submit` returned.

        Args:
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if it is no longer there.
            ShardcallError: of the class that fits.
        """
        finish_write()
        return self._owner.get(self, timeout=timeout)

    def delete(self, *, timeout: float | None = SHORT_TIMEOUT_S) -> None:
        """Deletes the array from the mesh; may be called again.

        An array that a copy shares stays until the last object of it is deleted or dropped.

        Args:
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.
        """
        if not self._version.lost:
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
        self._owner._copied(self)
        return np.asarray(self.get(), dtype=dtype)

    def __getitem__(self, key: Any) -> Any:
        part = self._functions.getitem(self, key)
        if isinstance(part, RemoteArray) and part.size and is_view(key, part.ndim):
            part._become_view(self, is_contiguous=self._is_contiguous and is_contiguous(key, self.shape))
        return part

    def _get_implicitly(self) -> NDArray | None:
        try:
            self._owner._copied(self)
        except TypeError:
            return None
        return self.get()

    def __setitem__(self, key: Any, value: Any) -> None:
        finish_write(self, value)
        self._assign(self._owner.xp.setitem(self, key, value), value)

    def _assign(self, result: Any, value: Any = None, *, is_operator: bool = False) -> None:
        new = find_remote_array(result)
        assert new is not None
        check_same_trace(self, new)
        if (base := self._base) is not None:
            self._report_lost_write(base, is_operator=is_operator)
        self._become(new._version)

    @property
    def _base(self) -> RemoteArray | None:
        """The array that the object is a view of in NumPy; None if it is none, and after that array was dropped."""
        return next((base for reference in self._bases if (base := reference()) is not None), None)

    def _become_view(self, base: RemoteArray, *, is_contiguous: bool) -> None:
        """Notes that the object is a view of another array in NumPy.

        Args:
            base: the array.
            is_contiguous: whether its elements follow each other in the memory of the array.
        """
        self._bases = (weakref.ref(base), *base._bases)
        self._is_contiguous = is_contiguous

    def _report_lost_write(self, base: RemoteArray, *, is_operator: bool) -> None:
        """Warns of a write that NumPy would make to another array, too."""
        note_lost_write(self, base, is_operator=is_operator)

    @property
    def _is_scalar(self) -> bool:
        return not self.ndim and not self._is_ndarray and self._base is None

    def flatten(self, order: str = "C") -> Self:
        """Returns the elements in one axis, in row-major order, as a copy."""
        flat = self.ravel(order)
        flat._bases = ()
        return flat

    @property
    def _functions(self) -> Any:
        return self._owner.xp

    def _state(self) -> str:
        """Returns ``"pending"`` or ``"failed"`` for an array of a call that is not done, empty for any other."""
        pending = self._version.pending
        if pending is None or (pending.is_done and not pending.is_failed):
            return ""
        return "failed" if pending.is_failed else "pending"

    def __repr__(self) -> str:
        gone = f", {self._version.lost}" if self._version.lost else ""
        if state := self._state():
            return f"<RemoteArray {self.type}, {state}{gone}>"
        return f"<RemoteArray {self.type} {self.spec} on {self.mesh.short}, {human(self.device_bytes)}{gone}>"

    def _repr_html_(self) -> str:
        """Returns a display for a notebook, without a round trip: the blocks and the devices that hold them."""
        state = self._state()
        rows = {"values": f"{human(self.nbytes)}; see .get()"}
        if gone := self._version.lost or state:
            rows = {"state": gone, **rows}
        if state:
            return page.page(f"RemoteArray {self.type}", page.facts(rows))
        padded = "" if self.padded_shape == self.shape else f", padded to {self.padded_shape}"
        rows["on devices"] = f"{human(self.device_bytes)}{padded}"
        rows["committed"] = "yes" if self.committed else "no: it moves to the devices of another operand"
        picture = page.scrolled(element(self.visualize()))
        return page.page(f"RemoteArray {self.type}", page.facts(rows), page.beside(picture))


def check_same_trace(array: RemoteArray, result: RemoteArray) -> None:
    """Checks that an array is changed to one of the same trace, or of none.

    Raises:
        TracingError: if a traced function changes an array that is not of its trace.
    """
    if result._is_traced and not array._is_traced:
        raise TracingError(
            "a traced function changes an array that is not its own, which would keep its elements; begin with a "
            "copy, a = a.copy(), and return it"
        )


def find_remote_array(value: object) -> RemoteArray | None:
    """Returns the array on the mesh that a value represents; None if it represents none."""
    # Looked up in the class: faster than a check of the protocol, and mocks have every attribute.
    method: Callable[[object], RemoteArray | None] | None = getattr(type(value), "__remote_array__", None)
    return None if method is None else method(value)


def snapshot(array: RemoteArray) -> RemoteArray:
    """Returns a separate object for an array, which assignments to the caller's object do not change.

    Calls hold their operands as such objects, since another thread may assign to the caller's objects meanwhile.
    """
    return RemoteArray._of(array._version)


def find_object(version: ArrayVersion) -> RemoteArray:
    """Returns the object that stands for a version, a new one if the caller has none."""
    array: RemoteArray | None = None if version.object is None else version.object()
    if array is not None and array._version is version:
        return array
    array = RemoteArray._of(version)
    version.object = weakref.ref(array)
    version.add_sharers(array)
    return array


def settle(array: RemoteArray, deadline: Deadline | None = None) -> None:
    """Waits until an array is on the mesh, if a call that was submitted makes it.

    Args:
        deadline: the end of the wait; None for that of the call.

    Raises:
        ShardcallError: of the call that failed.
    """
    array._settled(deadline)


def settle_others(values: Sequence[object], owner: Owner, deadline: Deadline | None = None) -> None:
    """Waits for operands that calls of other clients make, which a call of this client may overtake.

    Args:
        values: the operands.
        owner: this client.
        deadline: the end of the wait; None for those of the calls.

    Raises:
        DeadlineExceededError: if an array is not there in time.
        ShardcallError: of the call that failed.
    """
    for value in values:
        if isinstance(value, RemoteArray) and value._version.owner is not owner and value._version.pending is not None:
            settle(value, deadline)


def is_pending(array: RemoteArray) -> bool:
    """Returns True for an array of a submitted call until `settle`, or a property that waits, has returned."""
    return array._version.placed is None


def pending_result(array: RemoteArray) -> PendingResult | None:
    """Returns the result of a submitted call that an array stands for; None for any other, and after `settle`."""
    return array._version.pending


def give_up_shared(array: RemoteArray, why: str) -> bool:
    """Makes an object stand for a lost array and returns True, if other objects of the caller share its array.

    Args:
        why: the reason that errors of later uses give, as of `mark_lost`.
    """
    version = array._version
    others = [sharer for sharer in version.list_sharers() if sharer is not array]
    if not any(sharer._version is version for sharer in others):
        return False
    array._become(replace(version, lost=why))
    return True


def mark_lost(array: RemoteArray, why: str) -> None:
    """Sets the reason that errors of later uses give: ``which was deleted``, or with advice ``which …; use …``."""
    array._version.lost = why


def check_server(array: RemoteArray, here: ServerIdentity, field: str) -> None:
    """Checks that an array is on a client's server.

    Raises:
        InvalidOperandError: if it is on another.
    """
    there = array._version.server
    if not there.is_same(here):
        raise InvalidOperandError(
            f"{field} is on the server at {there.address}, and this client is connected to {here.address}; "
            "use the client that the array came from, or give a copy of it: numpy.asarray(array)",
            field=field,
        )


def check_there(array: RemoteArray, field: str) -> None:
    """Checks that this client has not deleted an array.

    Raises:
        ArrayLostError: if it has.
    """
    if array._version.lost:
        why, advised, advice = array._version.lost.partition("; ")
        advice = advice if advised else "put it anew with Client.put, or keep it for longer"
        raise ArrayLostError(f"{field} is {array.type}, {why}; {advice}", field=field)
