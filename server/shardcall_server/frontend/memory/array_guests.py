"""Guests of names: the principals that may use the array of another one's name."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, replace

from shardcall.v1 import array_service_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.types.sizes import exact
from shardcall_core.wire.token_file import is_name
from shardcall_server.frontend.memory.leases import ResidentArray

MAX_GUESTS = 64  # of a name
MAX_GUESTS_OF_OWNER = 1024  # of all names of a principal; bounds what a list of its guests can grow by
HANDLE_BYTES = 16


@dataclass(frozen=True, eq=False)
class Guest:
    """A principal that may use the array of another one's name.

    Attributes:
        array: the array under the handle that the guest has for it, which is valid for these values alone.
        may_write: whether the guest may replace the values.
    """

    array: ResidentArray
    may_write: bool


class ArrayGuests:
    """The guests of all names. The lock of the table of arrays guards it.

    A guest has a handle of its own for the values of a name. So it learns no handle of the owner, no owner can choose a
    handle that another owner's array has, and a handle ends with the values, or when the name is no longer shared.
    """

    def __init__(self) -> None:
        self._guests: dict[tuple[str, str], dict[str, Guest]] = {}  # by owner and name, then by guest
        self._arrays: dict[tuple[str, bytes], ResidentArray] = {}  # by guest and handle
        self._counts: Counter[str] = Counter()  # of guests, by owner
        self._names: dict[str, dict[tuple[str, str], None]] = {}  # by guest: owners and names

    def add(self, resident: ResidentArray, principal: str, *, may_write: bool) -> None:
        """Adds a guest of the name of an array, or changes what it may do.

        Raises:
            CallError: RESIDENT_LIMIT.
        """
        key = resident.owner, resident.name
        if (guest := self.get(*key, principal)) is not None:
            self._guests[key][principal] = replace(guest, may_write=may_write)
            return
        guests = self._guests.get(key, {})
        if len(guests) >= MAX_GUESTS or self._counts[resident.owner] >= MAX_GUESTS_OF_OWNER:
            raise _too_many(resident.name, len(guests), self._counts[resident.owner])
        self._guests.setdefault(key, guests)
        self._names.setdefault(principal, {})[key] = None
        self._counts[resident.owner] += 1
        self._set(key, principal, _seen_by(principal, resident), may_write=may_write)

    def remove(self, owner: str, name: str, principal: str = "") -> None:
        """Removes a guest of a name; all of them if ``principal`` is empty."""
        key = owner, name
        guests = self._guests.get(key, {})
        for guest in [principal] if principal else [*guests]:
            if guest in guests:
                del self._arrays[guest, guests.pop(guest).array.handle]
                del self._names[guest][key]
                if not self._names[guest]:
                    del self._names[guest]
                self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        if not guests:
            self._guests.pop(key, None)

    def update(self, resident: ResidentArray, writer: str = "", handle: bytes = b"") -> None:
        """Gives the guests of a name handles for the array that it stands for now.

        Args:
            resident: the array. Handles that the guests have for it already stay.
            writer: the guest that has computed it; empty for the owner.
            handle: the handle of that guest for it.
        """
        key = resident.owner, resident.name
        for principal, guest in [*self._guests.get(key, {}).items()]:
            before = guest.array
            seen_as = before.handle if before.array_id == resident.array_id else b""
            seen = _seen_by(principal, resident, handle if principal == writer else seen_as)
            del self._arrays[principal, before.handle]
            self._set(key, principal, seen, may_write=guest.may_write)

    def _set(self, key: tuple[str, str], principal: str, array: ResidentArray, *, may_write: bool) -> None:
        self._guests[key][principal] = Guest(array, may_write)
        self._arrays[principal, array.handle] = array

    def get(self, owner: str, name: str, principal: str) -> Guest | None:
        """Returns a guest of a name; None if the principal is none."""
        return self._guests.get((owner, name), {}).get(principal)

    def find(self, principal: str, handle: bytes) -> ResidentArray | None:
        """Returns the array that a guest has a handle for; None if there is none."""
        return self._arrays.get((principal, handle))

    def of_principal(self, principal: str) -> list[ResidentArray]:
        """Returns the arrays that a principal is a guest of, under its handles."""
        return [self._guests[key][principal].array for key in self._names.get(principal, {})]

    def describe(self, resident: ResidentArray) -> list[array_service_pb2.ArrayGuest]:
        """Returns the guests of the name of an array for its owner; for a guest only itself."""
        guests = self._guests.get((resident.owner, resident.name), {})
        seen = [resident.guest] if resident.guest else sorted(guests)
        return [
            array_service_pb2.ArrayGuest(principal=principal, may_write=guests[principal].may_write)
            for principal in seen
            if principal in guests
        ]


def _seen_by(principal: str, resident: ResidentArray, handle: bytes = b"") -> ResidentArray:
    return replace(resident, handle=handle or secrets.token_bytes(HANDLE_BYTES), guest=principal)


def check_guest(principal: str, owner: str) -> None:
    """Refuses what can be no guest of an owner's names.

    Args:
        principal: as the client sent it; it need not have a token.
        owner: the caller; empty without authentication.

    Raises:
        CallError: NOT_SUPPORTED, INVALID_PARAMETER.
    """
    if not owner:
        raise CallError(
            Reason.NOT_SUPPORTED,
            "this server does not authenticate its callers, so that all of them are one principal and may use all "
            "arrays with names; start it with tokens to share arrays",
            field="principal",
        )
    if not is_name(principal):
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"the principal is {shorten(principal)!r}; give a name as of shardcall token add: 1 to 64 letters, digits, "
            "'.', '_', '@' and '-', a letter or digit first",
            field="principal",
            metadata={"principal": shorten(principal)},
        )
    if principal == owner:
        raise CallError(
            Reason.INVALID_PARAMETER,
            f"the principal is {principal!r}, which the array belongs to; name another principal",
            field="principal",
            metadata={"principal": principal},
        )


def read_only(text: str) -> CallError:
    """Returns the error of a write to an array that the caller may only read."""
    return CallError(
        Reason.ARRAY_READ_ONLY,
        f"the array {shorten(text)!r} is shared with this principal for reading; write to a copy of it, or have its "
        "owner share it by client.share(name, with_=…, write=True)",
        field="name",
        metadata={"name": shorten(text)},
    )


def other_type(text: str, resident: ResidentArray, before: ResidentArray) -> CallError:
    """Returns the error of a write of an array of another type, or one that takes more bytes on the devices."""
    return CallError(
        Reason.INVALID_OPERAND,
        f"the new values are {shorten(str(resident.type))} with {exact(resident.device_bytes)} on the devices, and the "
        f"array {shorten(text)!r} is {shorten(str(before.type))} with {exact(before.device_bytes)}; a principal that "
        "it is shared with may write values of its type alone, with no more bytes; place them as the values before",
        field="handle",
    )


def _too_many(name: str, guests: int, of_owner: int) -> CallError:
    return CallError(
        Reason.RESIDENT_LIMIT,
        f"the name {name!r} is shared with {guests} principals, and all names of this principal are with {of_owner}; "
        f"{MAX_GUESTS} of a name and {MAX_GUESTS_OF_OWNER} of all are allowed; end some by client.unshare",
        field="principal",
        metadata={"limit": "guests", "guests": str(guests), "limit_guests": str(MAX_GUESTS)},
    )
