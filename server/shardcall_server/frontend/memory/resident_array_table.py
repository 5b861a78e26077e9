"""The table of the arrays that stay on the mesh.

The mesh holds the arrays themselves and decides nothing about them: what leaves this table is told to it in the
order of launches.
"""

from __future__ import annotations

import itertools
import math
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

import structlog

from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.memory.leases import (
    MAX_ARRAYS,
    ArrayLease,
    LeaseTable,
    Quota,
    ResidentArray,
    check_lease_id,
)
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.settings import client_share

__all__ = ["LeaseTimer", "Reservation", "ResidentArray", "ResidentArrayTable", "array_lost"]

HANDLE_BYTES = 16
MAX_DELETED = 1024
_SHOWN_DIGITS = 8  # who has a handle may use it, so no message tells all of it
_MAX_PAST_EPOCHS = 1024  # no call lasts through so many restarts


class ResidentArrayTable:
    """The arrays that stay, bounded in all and by lease.

    Every owner, a principal of the server, sees its own arrays and leases alone; owner "" is everybody, where nobody is
    asked who they are.

    A lease is there while it has arrays or reservations; whatever names it or one of its arrays renews it, but
    for deleting. An array is on the mesh when a command that names it arrives if it is found, and the command
    sent, while the session's `order` is held.

    Args:
        max_bytes: the most bytes on the devices, in all; may change with the mesh.
        max_lease_bytes: the most of one lease; 0 for what its client may have.
        lease_s: how long a lease lasts after it was last named.
        on_delete: told which arrays were deleted, or ended with their lease; those of an epoch that ended are not
            told. Called without the table's lock, by whichever thread noticed.
        clock: seconds that never go back.
        max_client_bytes: the most of one client; 0 for three quarters of what others leave of ``max_bytes``, so that
            who comes next finds some.
    """

    def __init__(
        self,
        max_bytes: Callable[[], int],
        max_lease_bytes: int,
        lease_s: float,
        on_delete: Callable[[Sequence[ResidentArray]], None],
        clock: Callable[[], float] = time.monotonic,
        max_client_bytes: float = math.inf,
    ) -> None:
        self._on_delete = on_delete
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._by_handle: dict[bytes, ResidentArray] = {}
        self.max_bytes = max_bytes
        self._max_client_bytes = min(max_lease_bytes or max_client_bytes, max_client_bytes or max_lease_bytes)
        self._quota = Quota("the arrays of all leases", MAX_ARRAYS, lambda _: max_bytes(), "max_resident_bytes")
        self._leases = LeaseTable(lease_s, max_lease_bytes, clock, max_client_bytes, self._left_bytes, self._held)
        self._device_bytes = 0
        self._past_epochs: deque[int] = deque(maxlen=_MAX_PAST_EPOCHS)

    @property
    def lone_client_bytes(self) -> int:
        """The most that one client may hold where no other holds anything."""
        return int(min(self._max_client_bytes or math.inf, client_share(self.max_bytes())))

    def _left_bytes(self, quota: Quota) -> int:
        return client_share(max(0, self.max_bytes() - (self._quota.nbytes - quota.nbytes)))

    def _held(self, quota: Quota) -> str:
        return (
            f", three quarters of what others, who hold {self._quota.nbytes - quota.nbytes}, leave of the "
            f"{self.max_bytes()} for all"
        )

    @property
    def count(self) -> int:
        """How many arrays stay."""
        return len(self._by_handle)

    @property
    def device_bytes(self) -> int:
        """The bytes that they take on the devices."""
        return self._device_bytes

    @property
    def reserved_bytes(self) -> int:
        """The bytes of those that are on their way."""
        with self._lock:
            return self._quota.nbytes - self._device_bytes

    @property
    def leases(self) -> int:
        """How many leases there are."""
        return len(self._leases)

    def reserve(self, lease_id: bytes, device_bytes: int, owner: str = "") -> Reservation:
        """Makes room for an array, and its id; its lease begins if there is none.

        Args:
            lease_id: whose it will be, as the client sent it.
            device_bytes: what the devices will hold.
            owner: the principal who puts it.

        Raises:
            CallError: a lease id of the wrong length, or no room.
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
        """The array of a handle.

        Args:
            handle: as the client sent it.
            owner: who asks; the arrays of others are as if they were not there.
            field: the part of the request that it came in, for the error message.

        Raises:
            CallError: ARRAY_LOST, or a handle of the wrong length.
        """
        _check_handle(handle, field)
        with self._changing():
            resident = self._by_handle.get(handle)
            if resident is None or resident.owner != owner:
                raise array_lost(handle, field)
            self._leases.renew(resident.lease)
            return resident

    def of_lease(self, lease_id: bytes, owner: str = "") -> list[ResidentArray]:
        """The arrays of an owner's lease, oldest first; none for one that is unknown.

        Raises:
            CallError: a lease id of the wrong length.
        """
        check_lease_id(lease_id)
        with self._changing():
            lease = self._leases.get(owner, lease_id)
            return list(lease.arrays.values()) if lease is not None else []

    def renew(self, lease_id: bytes, owner: str = "") -> bool:
        """Makes an owner's lease last its full time from now; returns whether it holds any array.

        Raises:
            CallError: a lease id of the wrong length.
        """
        check_lease_id(lease_id)
        with self._changing():
            lease = self._leases.get(owner, lease_id)
            return lease is not None and bool(lease.arrays)

    def delete(self, handles: Sequence[bytes], owner: str = "") -> list[ResidentArray]:
        """Deletes an owner's arrays; returns those that were there.

        Raises:
            CallError: too many handles, or one of the wrong length; then none is deleted.
        """
        if len(handles) > MAX_DELETED:
            raise CallError(
                Reason.MALFORMED_REQUEST,
                f"{len(handles)} handles came; delete at most {MAX_DELETED} arrays in one call",
                field="handles",
                metadata={"handles": str(len(handles)), "allowed": str(MAX_DELETED)},
            )
        for handle in handles:
            _check_handle(handle, "handles")
        with self._changing() as gone:
            named = [self._by_handle[handle] for handle in dict.fromkeys(handles) if handle in self._by_handle]
            there = [resident for resident in named if resident.owner == owner]
            self._remove(there)
            gone.extend(there)
        return there

    def expire(self) -> list[ResidentArray]:
        """Ends the leases that are over; returns their arrays."""
        with self._changing() as gone:
            pass  # as every method does
        return gone

    def next_expiry_s(self) -> float:
        """Seconds until `expire` is to be called next."""
        with self._lock:
            return self._leases.next_expiry_s()

    def remove_epoch(self, epoch: int) -> None:
        """Forgets the arrays of a session that ended, and refuses those that are yet to be committed."""
        with self._lock:
            self._past_epochs.append(epoch)
            self._remove([resident for resident in self._by_handle.values() if resident.epoch == epoch])

    def settle(self, reservation: Reservation, resident: ResidentArray | None) -> None:
        """Ends a reservation, for the reservation itself: an array takes its place, or nothing."""
        lease = reservation.lease
        with self._changing() as gone:
            if reservation.settled and resident is None:
                return
            if reservation.settled:
                raise RuntimeError("a reservation was committed after it had ended")
            reservation.settled = True
            self._release(lease, reservation.device_bytes)
            try:
                if resident is not None:
                    self._add(lease, resident, gone)
            finally:
                self._leases.remove_if_empty(lease)

    def _add(self, lease: ArrayLease, resident: ResidentArray, gone: list[ResidentArray]) -> None:
        if resident.epoch in self._past_epochs:
            raise CallError(
                Reason.ARRAY_LOST, "the mesh restarted while the array was put there, and it is lost; put it anew"
            )
        try:
            self._reserve(lease, resident.device_bytes)
        except CallError:
            gone.append(resident)  # the mesh holds it, and nobody else tells it
            raise
        self._device_bytes += resident.device_bytes
        self._by_handle[resident.handle] = lease.arrays[resident.handle] = resident
        self._leases.renew(lease)

    def _remove(self, resident_arrays: Sequence[ResidentArray]) -> None:
        for resident in resident_arrays:
            lease = resident.lease
            del self._by_handle[resident.handle], lease.arrays[resident.handle]
            self._device_bytes -= resident.device_bytes
            self._release(lease, resident.device_bytes)
            self._leases.remove_if_empty(lease)

    def _reserve(self, lease: ArrayLease, nbytes: int) -> None:
        for quota in (*lease.quotas, self._quota):
            quota.check(nbytes)
        for quota in (*lease.quotas, self._quota):
            quota.count(1, nbytes)

    def _release(self, lease: ArrayLease, nbytes: int) -> None:
        for quota in (*lease.quotas, self._quota):
            quota.count(-1, -nbytes)

    @contextmanager
    def _changing(self) -> Iterator[list[ResidentArray]]:
        """Holds the lock, with no lease in the table that is over; what is in the list at the end was deleted."""
        gone: list[ResidentArray] = []
        try:
            with self._lock:
                while (lease := self._leases.pop_expired()) is not None:
                    gone.extend(lease.arrays.values())
                    self._remove(list(lease.arrays.values()))
                yield gone
        finally:
            if gone:
                self._on_delete(gone)


class Reservation:
    """Room for one array that is on its way: it comes, or the room goes back.

    As a context manager it is cancelled unless it was committed. Whoever cancels after a command that makes the
    array was sent tells the mesh to delete it; where `commit` refuses, the table's `on_delete` is told.
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
    ) -> ResidentArray:
        """Puts the array into the table, with a handle of its own.

        Raises:
            CallError: ARRAY_LOST: its epoch ended meanwhile; RESIDENT_LIMIT: it is larger than was reserved and there
                is no room. The reservation has ended then, too.
        """
        resident = ResidentArray(
            handle=secrets.token_bytes(HANDLE_BYTES),
            array_id=self.array_id,
            epoch=epoch,
            lease=self.lease,
            type=type,
            mesh=mesh,
            placement=placement,
            device_bytes=device_bytes,
        )
        self._table.settle(self, resident)
        return resident

    def cancel(self) -> None:
        """Gives the room back, if that has not happened."""
        self._table.settle(self, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()


class LeaseTimer:
    """Ends leases when they are over, from a thread of its own.

    Args:
        table: the table.
    """

    def __init__(self, table: ResidentArrayTable) -> None:
        self._table = table
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease-timer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread; leases stay as they are."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        log = structlog.get_logger()
        while not self._closing.wait(self._table.next_expiry_s()):
            try:
                self._table.expire()
            except Exception:
                log.exception("the mesh could not be told which arrays ended with their lease")


def array_lost(handle: bytes, field: str = "handle") -> CallError:
    """The error of a handle that no array has."""
    told = f"{handle.hex()[:_SHOWN_DIGITS]}…"
    return CallError(
        Reason.ARRAY_LOST,
        f"no array on the mesh has the handle {told}: it was deleted, its lease ended, or the mesh or "
        "the server restarted; put the array anew",
        field=field,
        metadata={"handle": told},
    )


def _check_handle(handle: bytes, field: str) -> None:
    if len(handle) != HANDLE_BYTES:
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"{field}: a handle of {len(handle)} bytes came; send the {HANDLE_BYTES} bytes that the server gave",
            field=field,
            metadata={"bytes": str(len(handle)), "allowed": str(HANDLE_BYTES)},
        )
