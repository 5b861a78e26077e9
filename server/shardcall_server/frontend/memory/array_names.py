"""Names of resident arrays."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable

from shardcall_core.array_names import MAX_NAME, NAME
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_server.frontend.memory.array_guests import ArrayGuests
from shardcall_server.frontend.memory.leases import ResidentArray
from shardcall_server.frontend.memory.name_versions import NameHistory, first_history, next_history, now_us


class ArrayNames:
    """The names of arrays, and the times at which arrays with names end; one lock guards the table and its names.

    Args:
        clock: a monotonic clock, in seconds.

    Attributes:
        guests: the principals that names are shared with.
        ends_sooner: set when an array ends before all others.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.guests = ArrayGuests()
        self.ends_sooner = threading.Event()
        self._arrays: dict[tuple[str, str], ResidentArray] = {}  # by owner and name
        # The ends of arrays, the first one first; some are of arrays that have gone, or lost the name.
        self._ends: list[tuple[float, str, str]] = []
        self._mesh_began_us = now_us()

    def __len__(self) -> int:
        return len(self._arrays)

    def of_owner(self, owner: str) -> list[ResidentArray]:
        """Returns the arrays of an owner."""
        return [resident for (principal, _), resident in self._arrays.items() if principal == owner]

    def find(self, owner: str, name: str) -> ResidentArray | None:
        """Returns the array that a name of an owner stands for; None if there is none."""
        return self._arrays.get((owner, name))

    def end_mesh(self) -> None:
        """Begins the versions of new names after all that clients may have seen on the mesh that has ended."""
        self._mesh_began_us = max(now_us(), self._mesh_began_us + 1)

    def history(self, owner: str, name: str, resident: ResidentArray) -> NameHistory:
        """Returns the history that a name has when it stands for an array, which may have it already."""
        before = self.find(owner, name)
        if before is None or before.history is None:
            return first_history(self._mesh_began_us)
        return before.history if before.array_id == resident.array_id else next_history(before.history)

    def put(self, resident: ResidentArray, writer: str = "", handle: bytes = b"") -> None:
        """Has the name of an array stand for it, and no longer for another one; the guests of the name stay.

        Args:
            resident: the array.
            writer: the guest that has computed it; empty for the owner.
            handle: the handle of that guest for it.
        """
        self._arrays[resident.owner, resident.name] = resident
        self.guests.update(resident, writer, handle)
        if resident.expires_at < math.inf:
            heapq.heappush(self._ends, (resident.expires_at, resident.owner, resident.name))
            if len(self._ends) > 2 * len(self._arrays) + 16:
                self._ends = [
                    (there.expires_at, *key) for key, there in self._arrays.items() if there.expires_at < math.inf
                ]
                heapq.heapify(self._ends)
            if self._ends[0][0] == resident.expires_at:
                self.ends_sooner.set()

    def remove(self, resident: ResidentArray) -> None:
        """Removes the name of an array and its guests, unless it stands for another array now."""
        if self._arrays.get((resident.owner, resident.name)) is resident:
            del self._arrays[resident.owner, resident.name]
            self.guests.remove(resident.owner, resident.name)

    def first_expired(self) -> ResidentArray | None:
        """Returns an array that has ended; None if there is none. The caller removes it."""
        while self._ends and self._ends[0][0] <= self._clock():
            expires_at, owner, name = heapq.heappop(self._ends)
            there = self._arrays.get((owner, name))
            if there is not None and there.expires_at == expires_at:
                return there
        return None

    def next_expiry_s(self) -> float:
        """Returns the seconds until an array can end; infinity if there is none."""
        return max(0.0, self._ends[0][0] - self._clock()) if self._ends else math.inf


def check_name(name: str) -> None:
    """Refuses what is no name.

    Raises:
        CallError: INVALID_PARAMETER.
    """
    if not NAME.fullmatch(name):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"the name is {shorten(name)!r}; give 1 to {MAX_NAME} ASCII letters, digits, '.', '_' and '-'",
            field="name",
            metadata={"name": shorten(name), "allowed": NAME.pattern},
        )


def address_of(text: str, caller: str) -> tuple[str, str]:
    """Returns the principal and the name in ``name``, which is the caller's, or ``principal/name``.

    Args:
        text: as the client sent it.
        caller: the principal of the call.

    Raises:
        CallError: INVALID_PARAMETER.
    """
    principal, slash, name = text.rpartition("/")
    check_name(name)
    return (principal if slash else caller), name


def no_array(text: str, note: str = "") -> CallError:
    """Returns the error of a name that stands for no array that the caller may use; ``note`` follows the reasons."""
    return CallError(
        Reason.ARRAY_LOST,
        f"no array has the name {shorten(text)!r}: none was put under it, it was deleted, its time ended, or the mesh "
        f"or the server restarted; list the names by client.list(), or put the array again{note}",
        field="name",
        metadata={"name": shorten(text)},
    )


def not_yet_restored(text: str) -> CallError:
    """Returns the error of a name of a checkpoint that the next mesh is to have."""
    return CallError(
        Reason.MESH_NOT_READY,
        f"the mesh is started again, and then has the array {shorten(text)!r} of the last checkpoint; repeat the call",
        field="name",
        metadata={"name": shorten(text)},
    )


def taken(name: str) -> CallError:
    """Returns the error of a name that stands for another array."""
    return CallError(
        Reason.NAME_TAKEN,
        f"the name {name!r} stands for another array; use another name, delete that array by "
        f"client.open({name!r}).delete(), or replace it by replace=True",
        field="name",
        metadata={"name": name},
    )


def written_meanwhile(name: str) -> CallError:
    """Returns the error of a write to an array that somebody else has written to since it was read."""
    return CallError(
        Reason.NAME_TAKEN,
        f"another client has written to the array named {name!r} meanwhile, and this write, which was computed from "
        "the values before that, is not made; repeat it",
        field="name",
        metadata={"name": name},
    )
