"""Arrays that stay on the mesh, the leases that keep them, and the room that they have."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from shardcall.v1 import array_service_pb2, kernel_pb2, mesh_pb2
from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels.layout import ArrayType

MAX_LEASE_ARRAYS = 1 << 12
"""So many can be told of in one message, unless their mesh has many axes of long names."""

MAX_ARRAYS = 1 << 14
"""Arrays of no bytes take memory too, some 20 KiB of the server's, and whoever wants may have many leases."""

MAX_CLIENT_ARRAYS = MAX_ARRAYS * 3 // 4
_LEASE_ID_BYTES = range(16, 65)


@dataclass(frozen=True, eq=False)
class ResidentArray:
    """An array that stays.

    Attributes:
        handle: what clients call it.
        array_id: what the mesh calls it; no other array of the front end's life has it.
        epoch: the session that holds it.
        lease: what keeps it.
        type: what clients see.
        mesh: the mesh, with its device ids.
        placement: how it lies there.
        device_bytes: what the devices hold, copies on several of them counted.
    """

    handle: bytes
    array_id: int
    epoch: int
    lease: ArrayLease
    type: ArrayType
    mesh: mesh_pb2.Mesh
    placement: kernel_pb2.ArrayPlacement
    device_bytes: int

    @property
    def lease_id(self) -> bytes:
        """What its client calls the lease."""
        return self.lease.lease_id

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.lease.owner

    def describe(self) -> array_service_pb2.ArrayDescription:
        """All that clients are told of it."""
        return array_service_pb2.ArrayDescription(
            handle=self.handle, mesh=self.mesh, placement=self.placement, device_bytes=self.device_bytes
        )


class Quota:
    """The arrays that may stay together, by number and by bytes on the devices.

    Args:
        whose: what they are, for the error message.
        max_arrays: how many of them.
        limit_bytes: the most bytes; of one client it may depend on what others hold.
        setting: what sets the bytes.
        describe_others: tells what holds the memory beside them; empty for nothing.
    """

    def __init__(
        self,
        whose: str,
        max_arrays: int,
        limit_bytes: Callable[[Quota], float],
        setting: str,
        describe_others: Callable[[Quota], str] = lambda _: "",
    ) -> None:
        self._whose = whose
        self._max_arrays = max_arrays
        self._limit_bytes = limit_bytes
        self._setting = setting
        self._describe_others = describe_others
        self.arrays = 0
        self.nbytes = 0

    def count(self, arrays: int, nbytes: int) -> None:
        """Counts arrays that come, or go where negative; unchecked."""
        self.arrays += arrays
        self.nbytes += nbytes

    def check(self, nbytes: int) -> None:
        """Makes sure that there is room for one more array.

        Raises:
            CallError: RESIDENT_LIMIT.
        """
        if self.arrays >= self._max_arrays:
            raise CallError(
                Reason.RESIDENT_LIMIT,
                f"{self._whose} are {self.arrays}, as many as may stay on the mesh; delete some that are not needed",
                metadata={"limit": "arrays", "held_arrays": str(self.arrays), "limit_arrays": str(self._max_arrays)},
            )
        limit_bytes = self._limit_bytes(self)
        if self.nbytes + nbytes > limit_bytes:
            raise CallError(
                Reason.RESIDENT_LIMIT,
                f"the array takes {nbytes} bytes on the devices, and {self._whose} hold {self.nbytes} of the "
                f"{limit_bytes} that they may{self._describe_others(self)}; delete arrays that are not needed, or "
                f"start the server with a larger --{self._setting.replace('_', '-')}",
                metadata={
                    "limit": self._setting,
                    "bytes": str(nbytes),
                    "held_bytes": str(self.nbytes),
                    "limit_bytes": str(limit_bytes),
                },
            )


@dataclass(eq=False)
class ArrayLease:
    """What keeps the arrays of one client.

    Attributes:
        owner: the principal whose it is; empty where nobody is asked who they are.
        lease_id: what its client calls it.
        quota: counts its arrays, and those on their way.
        client_quota: counts those of all leases of its owner; None where nobody is asked who they are.
        arrays: its arrays by handle, oldest first.
        expires_at: when it is over, by the clock.
    """

    owner: str
    lease_id: bytes
    quota: Quota
    client_quota: Quota | None = None
    arrays: dict[bytes, ResidentArray] = field(default_factory=dict)
    expires_at: float = 0.0

    @property
    def quotas(self) -> tuple[Quota, ...]:
        """All that count its arrays, but for the server's own."""
        return (self.quota,) if self.client_quota is None else (self.quota, self.client_quota)


class LeaseTable:
    """The leases that keep something, or are to.

    Args:
        lease_s: how long a lease lasts after it was last renewed.
        max_bytes: the most bytes on the devices of one lease's arrays; 0 for what its client may have.
        clock: seconds that never go back.
        max_client_bytes: the most of one client: of all leases of one owner, or of one lease where nobody is asked who
            they are; 0 for `left_bytes`.
        left_bytes: what others leave to a client.
        describe_others: tells what others hold.
    """

    def __init__(
        self,
        lease_s: float,
        max_bytes: int,
        clock: Callable[[], float],
        max_client_bytes: float,
        left_bytes: Callable[[Quota], int],
        describe_others: Callable[[Quota], str],
    ) -> None:
        self._left_bytes = left_bytes
        self._describe_others = describe_others
        self.lease_s = lease_s
        self._max_bytes = max_bytes
        self._max_client_bytes = max_client_bytes
        self._clients: dict[str, Quota] = {}  # of principals: as many as there are tokens
        self._clock = clock
        # By owner and id. All last equally long: the first ends first.
        self._leases: OrderedDict[tuple[str, bytes], ArrayLease] = OrderedDict()

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, owner: str, lease_id: bytes) -> ArrayLease | None:
        """An owner's lease that is there, renewed."""
        lease = self._leases.get((owner, lease_id))
        if lease is not None:
            self.renew(lease)
        return lease

    def get_or_create(self, owner: str, lease_id: bytes) -> ArrayLease:
        """An owner's lease, renewed; it begins if it is not there."""
        key = (owner, lease_id)
        if key not in self._leases:
            whose, most = "the arrays of this lease", self._max_bytes
            if most or owner:
                quota = Quota(whose, MAX_LEASE_ARRAYS, lambda _: most or math.inf, "max_resident_bytes_per_lease")
            else:
                quota = self._client_quota(whose, MAX_LEASE_ARRAYS)
            self._leases[key] = ArrayLease(owner, lease_id, quota, self._client(owner))
        lease = self._leases[key]
        self.renew(lease)
        return lease

    def _client(self, owner: str) -> Quota | None:
        if owner and owner not in self._clients:
            whose = f"the arrays of {shorten(owner)}, through all of its connections,"
            self._clients[owner] = self._client_quota(whose, MAX_CLIENT_ARRAYS)
        return self._clients.get(owner)

    def _client_quota(self, whose: str, max_arrays: int) -> Quota:
        if most := self._max_client_bytes:
            return Quota(whose, max_arrays, lambda _: most, "max_resident_bytes_per_client")
        return Quota(whose, max_arrays, self._left_bytes, "max_resident_bytes", self._describe_others)

    def renew(self, lease: ArrayLease) -> None:
        """Makes a lease that is there last its full time from now."""
        lease.expires_at = self._clock() + self.lease_s
        self._leases.move_to_end((lease.owner, lease.lease_id))

    def is_current(self, lease: ArrayLease) -> bool:
        """Whether it is this lease that is there, not one that took its name when it had ended."""
        return self._leases.get((lease.owner, lease.lease_id)) is lease

    def remove_if_empty(self, lease: ArrayLease) -> None:
        """Ends a lease that keeps nothing."""
        if not lease.quota.arrays and self.is_current(lease):
            del self._leases[lease.owner, lease.lease_id]

    def pop_expired(self) -> ArrayLease | None:
        """Takes out a lease that is over; None if there is none.

        None is while an array is on its way: its call shows that its client is there, and has an end of its own.
        """
        while (first := next(iter(self._leases.values()), None)) is not None and first.expires_at <= self._clock():
            if first.quota.arrays == len(first.arrays):
                return self._leases.pop((first.owner, first.lease_id))
            self.renew(first)
        return None

    def next_expiry_s(self) -> float:
        """Seconds until any lease can be over; one that begins meanwhile is not over sooner."""
        first = next(iter(self._leases.values()), None)
        return self.lease_s if first is None else max(0.0, first.expires_at - self._clock())


def check_lease_id(lease_id: bytes) -> None:
    """Refuses a lease id of the wrong length.

    Raises:
        CallError: MALFORMED_REQUEST.
    """
    if len(lease_id) not in _LEASE_ID_BYTES:
        allowed = f"{_LEASE_ID_BYTES[0]} to {_LEASE_ID_BYTES[-1]}"
        raise CallError(
            Reason.MALFORMED_REQUEST,
            f"lease_id has {len(lease_id)} bytes; name a lease with {allowed} random bytes of your own",
            field="lease_id",
            metadata={"bytes": str(len(lease_id)), "allowed": allowed},
        )
