"""Versions of arrays on the mesh; an assignment to elements replaces the version of an object."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from shardcall._src.rpc.deadline import Deadline
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import ShardcallError


@dataclass(frozen=True)
class ServerIdentity:
    """The server that has an array.

    Attributes:
        address: the address, as the array's client wrote it.
        epoch: the epoch of its mesh when the client connected.
    """

    address: str
    epoch: int

    def is_same(self, other: ServerIdentity) -> bool:
        """Returns True if both are one server, which may have several addresses, and whose mesh may restart."""
        return self.address == other.address or self.epoch == other.epoch


class PendingResult(Protocol):
    """A result of a call that was submitted."""

    def begin(self) -> None:
        """Sends the call, if it is recorded and was not sent yet."""

    @property
    def is_done(self) -> bool:
        """True if the call was answered."""

    def wait(self, deadline: Deadline | None) -> MeshPlacement:
        """Returns the placement of the result, after the answer.

        Args:
            deadline: the end of the wait; None for that of the call.

        Raises:
            ShardcallError: of the call that failed, this one or one that it depends on.
        """

    @property
    def is_failed(self) -> bool:
        """True if the call failed."""

    def dependent_failure(self, error: ShardcallError) -> ShardcallError:
        """Returns the error of a call that failed because this one did, for raising it."""


class Owner(Protocol):
    """The client of arrays, each a `RemoteArray`."""

    def get(self, array: Any, /, *, timeout: float | None) -> NDArray:
        """Copies an array's values from the mesh."""

    def delete(self, /, *arrays: Any, timeout: float | None) -> int:
        """Deletes arrays from the mesh."""

    def _copied(self, array: Any, /) -> None:
        """Counts a copy that NumPy requested; raises TypeError if they are not allowed."""

    @property
    def xp(self) -> Any:
        """The functions of arrays."""


@dataclass(eq=False)
class ArrayVersion:
    """An array on the mesh as a `RemoteArray` stands for it until an assignment to elements.

    The array stays on the mesh while a version of it does: while an object of the caller stands for it, or a call
    that is being sent has it as an operand.

    Attributes:
        owner: the client.
        server: the server.
        handle: the id of the array on the server.
        type: the shape and element type.
        placed: the placement; None until the call that makes the array is answered and its placement is read.
        pending: the result of that call, until then.
        committed: as `RemoteArray.committed`.
        lost: the reason that the array is gone, as the end of a sentence; empty while it is there.
        object: the caller's `RemoteArray` that stands for it, which may stand for another version by now.
    """

    owner: Owner
    server: ServerIdentity
    handle: bytes
    type: Array
    placed: MeshPlacement | None = None
    pending: PendingResult | None = None
    committed: bool = True
    lost: str = ""
    object: weakref.ref[Any] | None = field(default=None, init=False)
    _sharers: dict[int, weakref.ref[Any]] = field(default_factory=dict, init=False)

    def add_sharers(self, *objects: Any) -> None:
        """Adds objects of the caller that stand for it, the copied one and the copy."""
        sharers = self._sharers
        for item in objects:  # not in a set: their comparison compares elements
            sharers[id(item)] = weakref.ref(item, partial(sharers.pop, id(item)))

    def list_sharers(self) -> list[Any]:
        """Returns the objects that were added and still exist; they may stand for other versions by now."""
        return [sharer for reference in [*self._sharers.values()] if (sharer := reference()) is not None]
