"""Bases of arrays on the mesh, and the versions of their values, which a write replaces."""

from __future__ import annotations

import itertools
import sys
import warnings
import weakref
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from shardcall._src.device_arrays.write_locks import WriteLock
from shardcall._src.display.progress import Progress
from shardcall._src.rpc.deadline import Deadline
from shardcall_core.element_types import DType
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import ArrayLostError, ElementReadWarning, InvalidOperandError, ShardcallError
from shardcall_core.types.tracebacks import level_of_caller

MAX_ELEMENT_READS = 16
"""The reads of single elements of an array in a row, without a write, that the client does not warn of."""

MAX_PADDED_BYTES = 1 << 20
"""The size of the largest array that keeps its padding once its elements without it are computed."""


@dataclass(frozen=True)
class ServerIdentity:
    """The server that has an array.

    Attributes:
        address: the address, as the array's client wrote it.
        epoch: the epoch of its mesh when the client connected.
        others: the addresses of the client's other servers.
    """

    address: str
    epoch: int
    others: frozenset[str] = frozenset()

    def is_same(self, other: ServerIdentity) -> bool:
        """Returns True if both are one server, which may have several addresses, and whose mesh may restart."""
        return self.address == other.address or self.epoch == other.epoch

    def is_left(self, here: ServerIdentity) -> bool:
        """Returns True if a client that is at ``here`` now may have been at this one, and is no longer."""
        return not self.is_same(here) and self.address in here.others


class UnansweredCall(Protocol):
    """A call that makes arrays.

    Attributes:
        written: its result, if a write has replaced that while the call was recorded.
    """

    written: weakref.ref[ReplacedValues] | None

    def begin(self) -> None:
        """Sends the call, if it is recorded and was not sent yet."""

    @property
    def is_done(self) -> bool:
        """True if the call was answered."""

    def placement(self, index: int, deadline: Deadline | None) -> MeshPlacement:
        """Returns the placement of a result, after the answer.

        Args:
            index: the index of the result.
            deadline: the end of the wait; None for that of the call.

        Raises:
            ShardcallError: of the call that failed, this one or one that it depends on.
        """

    @property
    def is_failed(self) -> bool:
        """True if the call failed."""

    @property
    def is_recorded(self) -> bool:
        """True if it is recorded and was not sent yet."""

    @property
    def is_undoable(self) -> bool:
        """True if it may fail, so that a write of its result is undone."""

    @property
    def is_undone(self) -> bool:
        """True if a write of its result is undone: it failed, and somebody has read the error."""

    def dependent_failure(self, error: ShardcallError) -> ShardcallError:
        """Returns the error of a call that failed because this one did, for raising it."""

    def replaces(self, before: ArrayVersion) -> None:
        """Has values deleted once it has succeeded.

        Args:
            before: their stand-in; they themselves, if their call is recorded.
        """


class Owner(Protocol):
    """The client of arrays, each a `RemoteArray`.

    Attributes:
        _shows_values: whether `repr` and `str` of an array show its values.
    """

    _shows_values: bool

    def get(self, array: Any, /, *, timeout: float | None) -> NDArray:
        """Copies an array's values from the mesh."""

    def delete(self, /, *arrays: Any, timeout: float | None) -> int:
        """Deletes arrays from the mesh."""

    def _progress_of(self, call: object, timeout: float | None) -> Progress | None:
        """Returns the progress of an unanswered call; None if it is answered."""

    def _expected_placement(self, call: object, index: int) -> MeshPlacement | None:
        """Returns the placement of a result of an unanswered call; None if the server does not say it soon."""

    def _copied(self, array: Any, /) -> None:
        """Counts a copy that NumPy requested; raises TypeError if they are not allowed."""

    def _refresh_named(self, base: ArrayBase, /) -> None:
        """Gives a base the values that its name stands for now; raises ArrayLostError if there are none."""

    def _write_named(self, base: ArrayBase, version: ArrayVersion, /) -> None:
        """Replaces the array that the name of a base stands for, unless another client has done so."""

    def _copy_named(self, array: Any, /) -> Any:
        """Returns a copy of an array with a name, which no write of another client changes."""

    def _present(self, array: Any, /) -> Any:
        """Returns what an array is in the function that is traced; the array where none is."""

    def _record(self, name: str, /, *values: ArrayVersion | NDArray, **parameters: Any) -> ArrayVersion | None:
        """Records a call of a function; returns its result, or None if the call is not recorded."""

    @property
    def xp(self) -> Any:
        """The functions of arrays."""


@dataclass(eq=False)
class ArrayVersion:
    """An array on the mesh: the values of a base until a write, or those of a view of it.

    The array stays on the mesh while a version of it does: while an object of the caller has it, or a call that is
    being sent has it as an operand. A `stand_in` has the same attributes and does not keep it there.

    Attributes:
        owner: the client.
        server: the server.
        handle: the id of the array on the server.
        type: the shape and element type.
        placed: the placement; None until the call that makes the array is answered and its placement is read.
        pending: that call, until then.
        index: its index among the results of the call.
        committed: as `RemoteArray.committed`.
        lost: the reason that the array is gone, as the end of a sentence or with advice, ``which …; use …``; empty
            while it is there.
        base: the base whose values it is, which may have others by now; None for those of a view.
        earlier: the values that it has replaced, which the base has again if the call fails; None once it is answered.
    """

    owner: Owner
    server: ServerIdentity
    handle: bytes
    type: Array
    placed: MeshPlacement | None = None
    pending: UnansweredCall | None = None
    index: int = 0
    committed: bool = True
    lost: str = ""
    base: weakref.ref[ArrayBase] | None = field(default=None, init=False)
    earlier: ArrayVersion | ReplacedValues | None = field(default=None, init=False)
    _object: weakref.ref[ArrayVersion] | None = field(default=None, init=False)
    _stand_in: weakref.ref[ArrayVersion] | None = field(default=None, init=False)
    _is_replaced: bool = field(default=False, init=False)
    _sharers: dict[int, weakref.ref[Any]] = field(default_factory=dict, init=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the elements."""
        return self.type.nbytes

    def settled(self, deadline: Deadline | None = None) -> MeshPlacement:
        """Returns the placement, after the call that makes the array.

        Args:
            deadline: the end of the wait; None for that of the call.

        Raises:
            ShardcallError: of the call that failed.
        """
        pending = self.pending  # read first: another thread may set both
        if self.placed is None:
            assert pending is not None
            self.placed = pending.placement(self.index, deadline)
            self.pending = None
        return self.placed

    @property
    def last_good(self) -> ArrayVersion:
        """The values after the last write that was not undone; itself, if it was none or stays."""
        version = self
        while (pending := version.pending) is not None and pending.is_undone:
            earlier = version.earlier
            while isinstance(earlier, ReplacedValues):
                earlier = earlier.version or earlier.earlier
            if earlier is None:
                break
            version = earlier
        return (version._object and version._object()) or version

    @property
    def stand_in(self) -> ArrayVersion | None:
        """The object that stands for it where a write has replaced it, as long as that may be undone."""
        return None if self._stand_in is None else self._stand_in()

    def _new_stand_in(self) -> ArrayVersion:
        other = object.__new__(ArrayVersion)
        other.__dict__ = self.__dict__
        self._object, self._stand_in = weakref.ref(self), weakref.ref(other)
        return other

    def replace(self, before: ArrayVersion) -> None:
        """Keeps the values that it replaces until its call is answered.

        Those that are recorded stay a part of the program that they are sent with, and no result of it.

        Args:
            before: the values.
        """
        pending = self.pending
        if pending is None or self.lost or self._is_replaced or not pending.is_undoable:
            return
        maker = before.pending
        if maker is not None and maker.is_recorded:
            self.earlier = ReplacedValues(maker, before)
            pending.replaces(before)
        elif before.stand_in is not None:  # for a write to another base
            self.earlier = before
        else:
            self.earlier, before._is_replaced = before._new_stand_in(), True
            pending.replaces(self.earlier)

    def lose(self, why: str) -> None:
        """Sets the reason that the array is gone, as `lost`, and forgets what it has replaced."""
        self.lost, self.earlier = why, None

    def check_there(self, field: str) -> None:
        """Checks that this client has not deleted the array.

        Raises:
            ArrayLostError: if it has.
        """
        if self.lost:
            raise lost_error(self.type, self.lost, field)

    def check_server(self, here: ServerIdentity, field: str) -> None:
        """Checks that the array is on a client's server.

        Raises:
            ArrayLostError: if it is on one that the client has left.
            InvalidOperandError: if it is on another.
        """
        there = self.server
        if not there.is_same(here):
            if there.is_left(here):
                raise lost_error(
                    self.type,
                    f"which is on the server at {there.address}, and this client has gone on to {here.address}; "
                    "put it anew with Client.put, or open its name",
                    field,
                )
            raise InvalidOperandError(
                f"{field} is on the server at {there.address}, and this client is connected to {here.address}; "
                "use the client that the array came from, or give a copy of it: numpy.asarray(array)",
                field=field,
            )

    def add_sharers(self, *objects: Any) -> None:
        """Adds objects of the caller that stand for it, the copied one and the copy."""
        sharers = self._sharers
        for item in objects:  # not in a set: their comparison compares elements
            sharers[id(item)] = weakref.ref(item, partial(sharers.pop, id(item)))

    def list_sharers(self) -> list[Any]:
        """Returns the objects that were added and still exist; they may stand for other versions by now."""
        return [sharer for reference in [*self._sharers.values()] if (sharer := reference()) is not None]


class ReplacedValues:
    """Values of a base that a write has replaced before they were computed.

    Attributes:
        version: they, if their call was sent by itself; None while it is a part of a program that does not return them.
        earlier: as `ArrayVersion.earlier`.

    Args:
        maker: the call that makes them.
        values: they, which are not kept.
    """

    __slots__ = ("__weakref__", "_base", "earlier", "version")

    def __init__(self, maker: UnansweredCall, values: ArrayVersion) -> None:
        self.version: ArrayVersion | None = None
        self.earlier = values.earlier
        self._base = values.base
        maker.written = weakref.ref(self)

    def keep(self, version: ArrayVersion) -> None:
        """Keeps the values, whose call is sent by itself."""
        version.base, version.earlier, self.version = self._base, self.earlier, version


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
        if isinstance(value, ArrayVersion) and value.owner is not owner and value.pending is not None:
            value.settled(deadline)


def lost_error(array_type: Array, why: str, field: str) -> ArrayLostError:
    """Returns the error of a use of an array that is gone.

    Args:
        array_type: its type.
        why: the reason, as `ArrayVersion.lost`.
        field: its name.
    """
    why, advised, advice = why.partition("; ")
    advice = advice if advised else "put it anew with Client.put, or keep it for longer"
    return ArrayLostError(f"{field} is {array_type}, {why}; {advice}", field=field)


class ArrayBase:
    """The holder of the values of an array and of its views, which a write replaces.

    Attributes:
        type: the shape and the element type, which no write changes.
        array: the object that is no view; the caller may have dropped it.
        layout: as of `views.layout_of`, of an array that was a view as it was then; None before it is needed.
        was_view: whether it was a view of an array that nobody has any more.
        padded_axis: the axis whose last rows, behind those of the views of it, are padding; None if none are.
        name: the name on the server, of which other clients may have objects, too; empty if it has none.
        restored_us: the restart from which the name went on, as ``since_microseconds`` of the server's `NameVersion`.
        writers: the number of writes in progress, during which other clients' writes are not read.
        write_lock: the lock of writes, which a base that takes the place of this one has, too.
    """

    _serials = itertools.count(1)

    __slots__ = (
        "__weakref__",
        "_element_reads",
        "_serial",
        "_values",
        "_version",
        "_views",
        "array",
        "layout",
        "name",
        "padded_axis",
        "restored_us",
        "type",
        "was_view",
        "write_lock",
        "writers",
    )

    def __init__(self, version: ArrayVersion, array: Any = None, layout: NDArray | None = None) -> None:
        self.type = version.type
        self.array: weakref.ref[Any] | None = None if array is None else weakref.ref(array)
        self.layout = layout
        self.was_view = layout is not None
        self.padded_axis: int | None = None
        self.name = ""
        self.restored_us = 0
        self.writers = 0
        self.write_lock = WriteLock()
        self._views: dict[int, weakref.ref[Any]] = {}
        self._version = version
        # The values of views of a version, and the references whose values were dropped.
        self._values: tuple[ArrayVersion, dict[Hashable, weakref.ref[ArrayVersion]], list[Any]] = version, {}, []
        self._element_reads = 0  # in a row; negative after the warning
        self._serial = 0

    @property
    def serial(self) -> int:
        """A number that no other base has had, as an id may."""
        self._serial = self._serial or next(self._serials)
        return self._serial

    @property
    def keeps_padding(self) -> bool:
        """True if it stays when the elements of a view without the padding are computed: it is small."""
        return self.padded_axis is not None and self.type.nbytes <= MAX_PADDED_BYTES

    def add_read(self, *, is_of_one_element: bool) -> None:
        """Counts the reads of single elements in a row, and warns of many, once for an array."""
        if not is_of_one_element:
            self._element_reads = min(self._element_reads, 0)
            return
        self._element_reads += 1
        if self._element_reads > MAX_ELEMENT_READS:
            self._element_reads = -sys.maxsize
            warnings.warn(
                f"more than {MAX_ELEMENT_READS} elements of an array on the mesh, {self.type}, were read one by one, "
                "and every read waits for the server; copy the values once, values = array.get(), or a part of them, "
                "array[start:stop].get(), and read elements of the copy",
                ElementReadWarning,
                stacklevel=level_of_caller(),
            )

    @property
    def version(self) -> ArrayVersion:
        """The values: after a write that failed, and whose error somebody has read, those before."""
        version = self._version
        if version.earlier is None or version.base is None or version.base() is not self:  # such as a copy's
            return version
        return version.last_good

    @property
    def current(self) -> ArrayVersion:
        """The values, for an array with a name those that it stands for on the server now."""
        if self.name and not self.writers:
            self.version.owner._refresh_named(self)
        version = self.version
        if version.earlier is not None and version.pending is not None and version.pending.is_failed:
            version.pending.begin()  # it may have failed as part of a program
            version = self.version
        return version

    def replace(self, version: ArrayVersion) -> None:
        """Gives the array other values."""
        self._element_reads = min(self._element_reads, 0)
        before = self.version
        if version.earlier is None and version is not before:  # else those of another base, too, which has written them
            version.base = weakref.ref(self)
            version.replace(before)
        self._values = version, {}, []
        self._version = version  # last: this thread may be interrupted

    def add_view(self, view: Any) -> None:
        """Adds an object that is a view."""
        # No Python code runs when an object is dropped, which may happen anywhere: a Ctrl-C in it would be ignored. The
        # argument that follows, the reference, is what `pop` returns if there is no item.
        views = self._views
        views[id(view)] = weakref.ref(view, partial(views.pop, id(view)))

    def is_only_of(self, view: Any) -> bool:
        """Returns True if no other object of the caller has the array or a view of it."""
        return (self.array is None or self.array() is None) and [*self._views] == [id(view)]

    def value(self, version: ArrayVersion, steps: Hashable) -> ArrayVersion | None:
        """Returns the values of a view; None if they were not computed, are lost, or nobody has kept them.

        Args:
            version: the values of the array that they are computed from.
            steps: the steps to the view.
        """
        computed_from, values, _ = self._values
        reference = values.get(steps) if computed_from is version else None
        value = None if reference is None else reference()
        return None if value is None or value.lost else value

    def add_value(self, version: ArrayVersion, steps: Hashable, value: ArrayVersion) -> None:
        """Stores the values of a view while somebody keeps them; arguments are those of `value`."""
        computed_from, values, dropped = self._values
        if computed_from is not version:
            if version is not self.version:
                return
            self._values = _, values, dropped = version, {}, []
        if 2 * len(dropped) > len(values):
            dropped.clear()
            for key, reference in list(values.items()):  # a copy: other threads add values meanwhile
                if reference() is None:
                    values.pop(key, None)
        values[steps] = weakref.ref(value, dropped.append)  # and not removed here, where Python code hashes the steps
