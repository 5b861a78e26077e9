"""The table of resident arrays.

The mesh holds the arrays and decides nothing about them: it deletes an array when a command says so, in the order of
launches.
"""

from __future__ import annotations

import itertools
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Self

from shardcall.v1 import array_service_pb2, kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.locks import check_held, lock
from shardcall_core.types.sizes import exact
from shardcall_core.wire.token_fields import PrincipalLimits, no_limits
from shardcall_server.frontend.files.checkpoint_folder import CheckpointFolder
from shardcall_server.frontend.memory.array_guests import (
    HANDLE_BYTES,
    check_guest,
    other_type,
    read_only,
)
from shardcall_server.frontend.memory.array_names import (
    ArrayNames,
    address_of,
    check_name,
    no_array,
    not_yet_restored,
    taken,
    written_meanwhile,
)
from shardcall_server.frontend.memory.leases import (
    ArrayLease,
    LeaseTable,
    Quota,
    ResidentArray,
    UntestedKernel,
    check_lease_id,
)
from shardcall_server.frontend.memory.name_versions import ANY, NameHistory, check_seen
from shardcall_server.frontend.memory.table_change import TableChange
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.settings import client_share

__all__ = ["Reservation", "ResidentArray", "ResidentArrayTable", "array_lost", "check_deleted", "check_handle"]

MAX_DELETED = 1024
_SHOWN_DIGITS = 8  # a handle gives access to its array, so no message contains all of it
_MAX_PAST_EPOCHS = 1024  # no call lasts through as many restarts


class ResidentArrayTable:
    """The resident arrays, limited in total, by client and by lease.

    An owner, which is a principal, can use only its own arrays and leases, and read the arrays whose names others share
    with it. Without authentication the owner is "".

    An array with a name is in no lease, and stays until it is deleted or its time ends.

    A lease exists while it has arrays or reservations. Every request that names it or one of its arrays renews it,
    except deletions. An array that is found may be deleted before a command that names it is sent; that then fails with
    ARRAY_LOST.

    Args:
        max_bytes: returns the total limit in bytes on the devices, which may change when the mesh restarts.
        max_lease_bytes: the limit of one lease; 0 for the limit of its client.
        lease_s: the duration of a lease after its last renewal.
        on_delete: called with arrays that were deleted or whose lease expired, but not with those of a past epoch. Any
            thread may call it, without the table's lock.
        clock: a monotonic clock, in seconds.
        max_client_bytes: the limit of one client; 0 for three quarters of the bytes that others leave of
            ``max_bytes``, so that some remain for the next client.
        max_arrays: the total number of arrays, of which one client has at most three quarters.
        limits_of: returns the present limits of a principal in the token file.
        checkpoints: the checkpoints of arrays with names; None for none.
        suspicion: returns the kernel that computed an array and has failed a known-answer test since; empty if none.

    Attributes:
        device_bytes: the bytes of all arrays on the devices.
    """

    def __init__(
        self,
        max_bytes: Callable[[], int],
        max_lease_bytes: int,
        lease_s: float,
        on_delete: Callable[[Sequence[ResidentArray]], None],
        clock: Callable[[], float] = time.monotonic,
        max_client_bytes: float = math.inf,
        max_arrays: int = 1 << 18,
        limits_of: Callable[[str], PrincipalLimits] = no_limits,
        checkpoints: CheckpointFolder | None = None,
        suspicion: Callable[[ResidentArray], str] = lambda _: "",
    ) -> None:
        self._checkpoints = checkpoints
        self._suspicion = suspicion
        self._on_delete = on_delete
        # Guards the table, its leases and their quotas; `on_delete` and `computed` run without it.
        self._lock = lock("the lock of the resident arrays")
        self._ids = itertools.count(1)
        self._by_handle: dict[tuple[str, bytes], ResidentArray] = {}  # by owner, too: clients choose handles
        self.max_bytes = max_bytes
        self._max_client_bytes = min(max_lease_bytes or max_client_bytes, max_client_bytes or max_lease_bytes)
        self._quota = Quota("the arrays of all leases", max_arrays, lambda _: max_bytes(), "max_resident_bytes")
        self._leases = LeaseTable(
            lease_s,
            client_share(max_arrays),
            max_lease_bytes,
            clock,
            max_client_bytes,
            self._left_bytes,
            self._held,
            limits_of,
        )
        self._names = ArrayNames(clock)
        self._clock = clock
        self.device_bytes = 0
        self._past_epochs: deque[int] = deque(maxlen=_MAX_PAST_EPOCHS)

    @property
    def lone_client_bytes(self) -> int:
        """The limit of one client if no other client has arrays."""
        return int(min(self._max_client_bytes or math.inf, client_share(self.max_bytes())))

    def _left_bytes(self, quota: Quota) -> int:
        return client_share(max(0, self.max_bytes() - (self._quota.nbytes - quota.nbytes)))

    def _held(self, quota: Quota) -> str:
        return (
            f" (three quarters of what other clients, which hold {exact(self._quota.nbytes - quota.nbytes)}, leave of "
            "the "
            f"{exact(self.max_bytes())} of all)"
        )

    @property
    def ends_sooner(self) -> threading.Event:
        """Set when an array with a name ends before all others; for the timer, which clears it."""
        return self._names.ends_sooner

    @property
    def count(self) -> int:
        """The number of arrays."""
        return len(self._by_handle)

    def now(self) -> float:
        """Returns the time by the table's clock, in seconds."""
        return self._clock()

    @property
    def named_count(self) -> int:
        """The number of arrays with names."""
        with self._changing():
            return self._leases.named_count

    @property
    def leases(self) -> int:
        """The number of leases."""
        return len(self._leases)

    def by_owner(self) -> dict[str, tuple[int, int]]:
        """Returns the arrays of principals, in leases and with names, and their bytes on the devices."""
        with self._changing():
            return {owner: (quota.arrays, quota.nbytes) for owner, quota in self._leases.by_owner().items()}

    def reserve(self, lease_id: bytes, device_bytes: int, owner: str = "") -> Reservation:
        """Reserves quota and an id for an array; its lease is created if there is none.

        Args:
            lease_id: the array's lease, as the client sent it.
            device_bytes: the array's bytes on the devices.
            owner: the principal that puts it.

        Raises:
            CallError: a lease id of the wrong length, or RESIDENT_LIMIT.
        """
        check_lease_id(lease_id)
        with self._changing():
            lease = self._leases.get_or_create(owner, lease_id)
            try:
                self._reserve(lease, device_bytes)
            finally:
                self._leases.remove_if_empty(lease)
            return Reservation(self, lease, next(self._ids), device_bytes)

    def find(self, handle: bytes, owner: str = "", field: str = "handle") -> ResidentArray:
        """Returns the array of a handle.

        Args:
            handle: as the client sent it.
            owner: the caller; the arrays of others are treated as missing, unless they share their names with it.
            field: the field of the request, for the error message.

        Raises:
            CallError: ARRAY_LOST, or a handle of the wrong length.
        """
        check_handle(handle, field)
        with self._changing():
            resident = self._by_handle.get((owner, handle)) or self._names.guests.find(owner, handle)
            if resident is None:
                raise array_lost(handle, field, self._note(owner))
            self._leases.renew(resident.lease)
            return resident

    def _note(self, owner: str, name: str = "") -> str:
        """Returns what an error about a lost array says of the last checkpoint."""
        return "" if self._checkpoints is None else self._checkpoints.note(owner, name)

    def of_lease(self, lease_id: bytes, owner: str = "") -> list[ResidentArray]:
        """Returns the arrays of an owner's lease, oldest first; none for an unknown lease.

        Raises:
            CallError: a lease id of the wrong length.
        """
        check_lease_id(lease_id)
        with self._changing():
            lease = self._leases.get(owner, lease_id)
            return list(lease.arrays.values()) if lease is not None else []

    def of_owner(self, owner: str) -> list[ResidentArray]:
        """Returns the arrays of all leases of an owner and those shared with it, oldest first; renews no lease."""
        with self._changing():
            there = [resident for lease in self._leases.of_owner(owner) for resident in lease.arrays.values()]
            there += self._names.guests.of_principal(owner)
        return sorted(there, key=lambda resident: resident.array_id)

    def of_names(self, owner: str) -> list[ResidentArray]:
        """Returns the arrays of an owner that have names, and those shared with it, oldest first."""
        with self._changing():
            there = self._names.of_owner(owner) + self._names.guests.of_principal(owner)
        return sorted(there, key=lambda resident: resident.array_id)

    def newest(self, count: int) -> list[ResidentArray]:
        """Returns the newest arrays of all owners, at most ``count``; renews no lease."""
        with self._lock:
            return list(itertools.islice(reversed(self._by_handle.values()), count))

    def describe(self, resident: ResidentArray) -> array_service_pb2.ArrayDescription:
        """Returns an array's description for clients, with its age and the time of its end."""
        description, now = resident.describe(), self._clock()
        description.suspect = self._suspicion(resident)
        description.age_seconds = max(0.0, now - resident.created_at)
        lease = resident.lease
        expires_at = max(lease.expires_at, lease.min_expires_at) if lease.lease_id else resident.expires_at
        if expires_at < math.inf:
            description.expires_in_seconds = max(0.0, expires_at - now)
        if resident.name:
            if self._checkpoints is not None and not resident.guest:
                description.in_checkpoint = self._checkpoints.has(resident.owner, resident.name, resident.handle)
            with self._lock:
                description.guests.extend(self._names.guests.describe(resident))
        return description

    def open(self, name: str, owner: str = "", seen: array_service_pb2.NameVersion = ANY) -> ResidentArray:
        """Returns the array that a name stands for.

        Args:
            name: ``name`` or ``principal/name``, as the client sent it.
            owner: the caller; the names of others are treated as missing, unless they are shared with it.
            seen: the version that the client has seen, which no restart may have lost.

        Raises:
            CallError: ARRAY_LOST, or INVALID_PARAMETER for what is no name.
        """
        principal, of_principal = address_of(name, owner)
        with self._changing():
            if principal == owner:
                resident = self._names.find(owner, of_principal)
            else:
                guest = self._names.guests.get(principal, of_principal, owner)
                resident = None if guest is None else guest.array
        if resident is None:
            raise self._missing(name, principal, of_principal, owner)
        if resident.history is not None:
            check_seen(name, resident.history, seen)
        return resident

    def _missing(self, text: str, principal: str, name: str, owner: str) -> CallError:
        """Returns the error of a name of a principal that stands for no array that the caller may use."""
        if principal != owner or self._checkpoints is None:
            return no_array(text)
        if self._checkpoints.is_awaited(owner, name):
            return not_yet_restored(text)
        return no_array(text, self._checkpoints.note(owner, name))

    def handle_of(self, owner: str, name: str) -> bytes:
        """Returns the handle of the array that a name of an owner stands for; empty for none."""
        with self._lock:
            there = self._names.find(owner, name)
        return b"" if there is None else there.handle

    def name(
        self,
        handle: bytes,
        name: str,
        owner: str = "",
        *,
        replaces: bool = False,
        expected: bytes = b"",
        keep_s: float = 0.0,
        lease_id: bytes = b"",
        history: NameHistory | None = None,
    ) -> ResidentArray:
        """Gives an array a name, and takes it out of its lease.

        Args:
            handle: the array, as the client sent it.
            name: the name; with ``expected`` also ``principal/name``, for a guest's write.
            owner: the caller.
            replaces: whether another array may lose the name.
            expected: the handle of the only array that may; the new one then ends when that one would have.
            keep_s: the seconds after which the array ends; 0 for no end.
            lease_id: the lease that gets an array that loses the name; empty to delete that.
            history: the versions of the name, which a checkpoint has; None for those of the mesh.

        Raises:
            CallError: ARRAY_LOST, NAME_TAKEN, ARRAY_READ_ONLY, RESIDENT_LIMIT, INVALID_OPERAND, or a wrong name, handle
                or lease id.
        """
        principal, bare_name = address_of(name, owner) if expected else (owner, name)
        check_name(bare_name)
        check_handle(handle, "handle")
        if lease_id:
            check_lease_id(lease_id)
        with self._changing() as gone:
            if principal != owner:
                return self._write_as_guest(handle, principal, bare_name, owner, expected, lease_id, gone)
            before = self._names.find(owner, bare_name)
            if expected and before is not None and before.handle == handle:
                return before  # a repeated request
            if expected and (before is None or before.handle != expected):
                raise no_array(name) if before is None else written_meanwhile(name)
            resident = self._by_handle.get((owner, handle))
            if resident is None:  # also if its call failed, since the write of another client deleted an operand
                raise array_lost(handle)
            if not (before is None or before is resident or replaces or expected):
                raise taken(name)
            if before is not None and expected:
                expires_at = before.expires_at
            else:
                expires_at = self._clock() + keep_s if keep_s else math.inf
            if before is resident:
                before = None
            replaced = () if before is None else ((before, None),)
            self._check_moves(*replaced, (resident, self._leases.of_names(owner)))
            moved = self._move(resident, self._leases.of_names(owner), bare_name, expires_at, history=history)
            if before is not None:
                self._leave(before, owner, lease_id, before.handle, gone)
            self._leases.remove_if_empty(resident.lease)
            return moved

    def _write_as_guest(
        self,
        handle: bytes,
        owner: str,
        name: str,
        writer: str,
        expected: bytes,
        lease_id: bytes,
        gone: list[ResidentArray],
    ) -> ResidentArray:
        """Has a name stand for an array of a guest, which becomes the owner's; arguments are those of `name`.

        The array gets another handle among those of the owner, who may have one that the guest has chosen.
        """
        check_held(self._lock)
        before = self._names.find(owner, name)
        guest = self._names.guests.get(owner, name, writer)
        address = f"{owner}/{name}"
        if before is None or guest is None:
            raise no_array(address)
        if not guest.may_write:
            raise read_only(address)
        if guest.array.handle == handle:
            return guest.array  # a repeated request
        if guest.array.handle != expected:
            raise written_meanwhile(address)
        resident = self._by_handle.get((writer, handle))
        if resident is None:
            raise array_lost(handle)
        if resident.type != before.type or resident.device_bytes > before.device_bytes:
            raise other_type(address, resident, before)
        theirs = self._leases.get_or_create(writer, lease_id) if lease_id else None
        self._check_moves((before, theirs), (resident, None))  # the owner's arrays do not grow
        self._move(
            resident, before.lease, name, before.expires_at, handle=secrets.token_bytes(HANDLE_BYTES), writer=writer
        )
        self._leave(before, writer, lease_id, expected, gone)
        self._leases.remove_if_empty(resident.lease)
        written = self._names.guests.get(owner, name, writer)
        assert written is not None
        return written.array

    def _leave(
        self, before: ResidentArray, owner: str, lease_id: bytes, handle: bytes, gone: list[ResidentArray]
    ) -> None:
        """Moves an array that has lost its name to a lease of the writer, under a handle of it; or deletes it."""
        if lease_id:
            self._move(before, self._leases.get_or_create(owner, lease_id), handle=handle)
        else:
            self._remove([before])
            gone.append(before)

    def _check_moves(self, *moves: tuple[ResidentArray, ArrayLease | None]) -> None:
        """Checks that arrays may move to other leases together.

        Args:
            moves: the arrays and the leases; None for one that is deleted, or moves within its principal's quota.

        Raises:
            CallError: RESIDENT_LIMIT.
        """
        counted: list[tuple[ResidentArray, ArrayLease]] = []
        for array, _ in moves:
            self._release(array.lease, array.device_bytes)
        try:
            for array, lease in moves:
                if lease is not None:
                    for quota in lease.quotas:
                        if quota not in array.lease.quotas:  # those that count it already do not grow
                            quota.check(array.device_bytes)
                    self._count(lease, array.device_bytes)
                    counted.append((array, lease))
        finally:
            for array, lease in counted:
                self._release(lease, array.device_bytes)
            for array, _ in moves:
                self._count(array.lease, array.device_bytes)
            for _, lease in moves:
                if lease is not None:
                    self._leases.remove_if_empty(lease)

    def _move(
        self,
        resident: ResidentArray,
        lease: ArrayLease,
        name: str = "",
        expires_at: float = math.inf,
        *,
        handle: bytes = b"",
        writer: str = "",
        history: NameHistory | None = None,
    ) -> ResidentArray:
        """Moves an array to another lease, or gives it another name in its own; returns it as it is then.

        Args:
            resident: the array. Its lease stays in the table, even if it is empty then.
            lease: the other lease.
            name: the name; empty for none.
            expires_at: the moment of its end.
            handle: another handle; empty to leave it as it is.
            writer: the guest of the name that has computed it; empty for the owner.
            history: as of `name`.
        """
        check_held(self._lock)
        if name and history is None:
            history = self._names.history(lease.owner, name, resident)
        handle = handle or resident.handle
        moved = replace(resident, lease=lease, name=name, expires_at=expires_at, handle=handle, history=history)
        if resident.name and (resident.owner, resident.name) != (lease.owner, name):
            self._names.remove(resident)
        del resident.lease.arrays[resident.handle], self._by_handle[resident.owner, resident.handle]
        self._count(lease, resident.device_bytes)
        self._release(resident.lease, resident.device_bytes)
        self._by_handle[lease.owner, moved.handle] = lease.arrays[moved.handle] = moved
        if name:
            self._names.put(moved, writer, resident.handle)
        return moved

    def share(self, name: str, owner: str, principal: str, *, may_write: bool = False) -> ResidentArray:
        """Shares the array of a name with another principal, as long as the name exists; returns the array.

        Args:
            name: the name, without a principal.
            owner: the caller.
            principal: the other one, which need not have a token yet.
            may_write: whether it may replace the values, too.

        Raises:
            CallError: ARRAY_LOST, RESIDENT_LIMIT, or a wrong name or principal; NOT_SUPPORTED without authentication.
        """
        check_guest(principal, owner)
        check_name(name)
        with self._changing():
            resident = self._names.find(owner, name)
            if resident is None:
                raise no_array(name)
            self._names.guests.add(resident, principal, may_write=may_write)
            return resident

    def unshare(self, name: str, owner: str, principal: str = "") -> ResidentArray:
        """Ends what `share` has allowed a principal, or all of them if it is empty; returns the array.

        Raises:
            CallError: as of `share`.
        """
        if principal or not owner:
            check_guest(principal, owner)
        check_name(name)
        with self._changing():
            resident = self._names.find(owner, name)
            if resident is None:
                raise no_array(name)
            self._names.guests.remove(owner, name, principal)
            return resident

    def renew(self, lease_id: bytes, owner: str = "", min_s: float = 0.0) -> bool:
        """Renews an owner's lease; returns whether it has an array.

        Args:
            lease_id: the lease.
            owner: the caller.
            min_s: the seconds from now before which it does not expire; 0 leaves that time as it is.

        Raises:
            CallError: a lease id of the wrong length.
        """
        check_lease_id(lease_id)
        with self._changing():
            lease = self._leases.get(owner, lease_id)
            if lease is not None and min_s:
                self._leases.keep(lease, min_s)
            return lease is not None and bool(lease.arrays)

    def delete(self, handles: Sequence[bytes], owner: str = "", *, with_named: bool = True) -> list[ResidentArray]:
        """Deletes an owner's arrays; returns those that existed.

        Args:
            handles: the handles; those without an array are ignored.
            owner: the caller.
            with_named: whether arrays with names are deleted, too, and from the last checkpoint.

        Raises:
            CallError: too many handles, or one of the wrong length; FILE_LIMIT or FILES_UNAVAILABLE if the checkpoint
                cannot be written without them. No array is deleted then.
        """
        check_deleted(handles)
        with self._lock:
            there = self._of_handles(handles, owner)
        if not with_named:
            return self._delete([resident.handle for resident in there if not resident.name], owner)
        named = [(resident.name, resident.handle) for resident in there if resident.name]
        forgetting = self._checkpoints.forgetting(owner, named) if self._checkpoints and named else nullcontext()
        with forgetting:
            return self._delete(handles, owner)

    def withdraw(self, resident: ResidentArray) -> None:
        """Deletes an array whose values could not be computed; the last checkpoint of its name stays."""
        self._delete([resident.handle], resident.owner)

    def _delete(self, handles: Sequence[bytes], owner: str) -> list[ResidentArray]:
        with self._changing() as gone:
            there = self._of_handles(handles, owner)
            self._remove(there)
            gone.extend(there)
        return there

    def _of_handles(self, handles: Sequence[bytes], owner: str) -> list[ResidentArray]:
        check_held(self._lock)
        there = (self._by_handle.get((owner, handle)) for handle in dict.fromkeys(handles))
        return [resident for resident in there if resident is not None]

    def expire(self) -> list[ResidentArray]:
        """Removes expired leases; returns their arrays."""
        with self._changing() as gone:
            pass  # it removes them
        return gone

    def next_expiry_s(self) -> float:
        """Returns the seconds until the next call of `expire` is due."""
        with self._lock:
            return min(self._leases.next_expiry_s(), self._names.next_expiry_s())

    def remove_epoch(self, epoch: int) -> None:
        """Removes the arrays of an epoch that has ended, and refuses to commit others of it."""
        with self._lock:
            self._past_epochs.append(epoch)
            self._names.end_mesh()
            if self._checkpoints is not None:
                self._checkpoints.end_epoch(epoch)
            self._remove([resident for resident in self._by_handle.values() if resident.epoch == epoch])

    def settle(self, reservation: Reservation, resident: ResidentArray | None) -> None:
        """Replaces a reservation by its array, or by nothing; for `Reservation`."""
        lease = reservation.lease
        with self._changing() as gone:
            if reservation.settled and resident is None:
                return
            if reservation.settled:
                raise RuntimeError("a reservation was committed after it had been settled")
            reservation.settled = True
            if resident is None:
                self._release(lease, reservation.device_bytes)
                self._leases.remove_if_empty(lease)
                return
            try:
                self._add(lease, resident, reservation.device_bytes, gone)
            except CallError:
                self._leases.remove_if_empty(lease)
                raise

    def _add(self, lease: ArrayLease, resident: ResidentArray, reserved: int, gone: list[ResidentArray]) -> None:
        """Replaces reserved bytes by an array; releases them if that fails."""
        if resident.epoch in self._past_epochs:
            self._release(lease, reserved)
            raise CallError(
                Reason.ARRAY_LOST, "the mesh restarted while the array was put there, and it is lost; put it again"
            )
        key = lease.owner, resident.handle
        if key in self._by_handle or self._names.guests.find(*key) is not None:
            self._release(lease, reserved)
            gone.append(resident)  # the mesh holds it already and must delete it
            raise CallError(
                Reason.MALFORMED_REQUEST,
                "an array of this client on the mesh has one of the result handles already; choose a handle at random "
                "for each result, and use it once",
                field="result_handles",
            )
        if resident.device_bytes != reserved:
            self._release(lease, reserved)
            try:
                self._reserve(lease, resident.device_bytes)
            except CallError:
                gone.append(resident)
                raise
        self.device_bytes += resident.device_bytes
        self._by_handle[lease.owner, resident.handle] = lease.arrays[resident.handle] = resident
        self._leases.renew(lease)

    def _remove(self, resident_arrays: Sequence[ResidentArray]) -> None:
        check_held(self._lock)
        for resident in resident_arrays:
            lease = resident.lease
            del self._by_handle[lease.owner, resident.handle], lease.arrays[resident.handle]
            if resident.name:
                self._names.remove(resident)
            self.device_bytes -= resident.device_bytes
            self._release(lease, resident.device_bytes)
            self._leases.remove_if_empty(lease)

    def _reserve(self, lease: ArrayLease, nbytes: int) -> None:
        check_held(self._lock)
        quotas = *lease.quotas, self._quota
        for quota in quotas:
            quota.check(nbytes)
        self._count(lease, nbytes)

    def _count(self, lease: ArrayLease, nbytes: int) -> None:
        for quota in (*lease.quotas, self._quota):
            quota.arrays += 1
            quota.nbytes += nbytes

    def _release(self, lease: ArrayLease, nbytes: int) -> None:
        check_held(self._lock)
        for quota in (*lease.quotas, self._quota):
            quota.arrays -= 1
            quota.nbytes -= nbytes

    def _changing(self) -> TableChange:
        """Holds the lock and removes expired leases; arrays in the list are reported as deleted at the end."""
        return TableChange(self._lock, self._remove_expired, self._on_delete)

    def _remove_expired(self, gone: list[ResidentArray]) -> None:
        while (lease := self._leases.pop_expired()) is not None:
            gone.extend(lease.arrays.values())
            self._remove(list(lease.arrays.values()))
        while (resident := self._names.first_expired()) is not None:
            self._remove([resident])
            gone.append(resident)


class Reservation:
    """A reservation for one array, which is committed or cancelled.

    As a context manager it is cancelled unless it was committed. If it is cancelled after the command that makes the
    array was sent, the caller must have the mesh delete the array; if `commit` fails, ``on_delete`` is called.
    """

    def __init__(self, table: ResidentArrayTable, lease: ArrayLease, array_id: int, device_bytes: int) -> None:
        self._table = table
        self.lease = lease
        self.array_id = array_id
        self.device_bytes = device_bytes
        self.settled = False

    def commit(
        self,
        epoch: int,
        type: ArrayType,  # noqa: A002  # as the field is called
        mesh: mesh_pb2.Mesh,
        placement: kernel_pb2.ArrayPlacement,
        device_bytes: int,
        handle: bytes = b"",
        computed: Promise[object] | None = None,
        *,
        age_s: float = 0.0,
        untested: tuple[UntestedKernel, ...] = (),
    ) -> ResidentArray:
        """Adds the array to the table.

        Args:
            epoch: the epoch of the mesh that holds it.
            type: its type without padding.
            mesh: the mesh, with device ids.
            placement: its placement on the mesh.
            device_bytes: its bytes on all devices.
            handle: the handle that the client chose; empty for a new one.
            computed: done when its values are computed; None if they are.
            age_s: its age, in seconds, if it was on an earlier mesh.
            untested: the kernels that it depends on and that have not passed their known-answer tests.

        Raises:
            CallError: ARRAY_LOST if its epoch has ended; RESIDENT_LIMIT if it is larger than the reservation and
                exceeds a quota; MALFORMED_REQUEST if its handle is in use. The reservation is settled then, too.
        """
        resident = ResidentArray(
            handle=handle or secrets.token_bytes(HANDLE_BYTES),
            array_id=self.array_id,
            epoch=epoch,
            lease=self.lease,
            type=type,
            mesh=mesh,
            placement=placement,
            device_bytes=device_bytes,
            computed=computed,
            created_at=self._table.now() - age_s,
            untested=untested,
        )
        self._table.settle(self, resident)
        return resident

    def withdraw(self, resident: ResidentArray) -> None:
        """Deletes the array again, if it still exists: its values could not be computed."""
        self._table.withdraw(resident)

    def cancel(self) -> None:
        """Releases the reservation if it is not settled."""
        if not self.settled:
            self._table.settle(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()


def array_lost(handle: bytes, field: str = "handle", note: str = "") -> CallError:
    """Returns the error of a handle without an array; ``note`` follows the reasons."""
    prefix = f"{handle.hex()[:_SHOWN_DIGITS]}…"
    return CallError(
        Reason.ARRAY_LOST,
        f"no array on the mesh has the handle {prefix}: it was deleted, its lease expired, or the mesh or "
        f"the server restarted; put the array again{note}",
        field=field,
        metadata={"handle": prefix},
    )


def check_deleted(handles: Collection[bytes]) -> None:
    """Raises CallError for handles of arrays to delete if there are too many, or one has the wrong length."""
    if len(handles) > MAX_DELETED:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"the request has {len(handles)} handles; delete at most {MAX_DELETED} arrays in one call",
            field="handles",
            metadata={"handles": str(len(handles)), "allowed": str(MAX_DELETED)},
        )
    for handle in handles:
        check_handle(handle, "handles")


def check_handle(handle: bytes, field: str) -> None:
    """Raises CallError for a handle of the wrong length."""
    if len(handle) != HANDLE_BYTES:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field}: the handle has {len(handle)} bytes; send the {HANDLE_BYTES} bytes that the server returned",
            field=field,
            metadata={"bytes": str(len(handle)), "allowed": str(HANDLE_BYTES)},
        )
