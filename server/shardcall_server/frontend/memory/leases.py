"""Resident arrays, their leases and their quotas."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from shardcall.v1 import array_service_pb2, kernel_pb2, mesh_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.types.sizes import exact
from shardcall_core.wire.token_fields import PrincipalLimits, no_limits
from shardcall_server.frontend.memory.name_versions import NameHistory, version_of
from shardcall_server.frontend.rpc.promise import Promise

_LEASE_ID_BYTES = range(16, 65)


@dataclass(frozen=True)
class UntestedKernel:
    """A kernel that computed an array before a known-answer test of it had run.

    Attributes:
        digest: the key of the test's verdict.
        kernel: the kernel.
    """

    digest: str
    kernel: str


@dataclass(frozen=True, eq=False)
class ResidentArray:
    """An array in device memory that outlives the call that made it.

    Attributes:
        handle: its random name for clients.
        array_id: its number for the mesh; unique in this process.
        epoch: the epoch of the mesh that holds it.
        lease: the lease that keeps it.
        type: its type without padding.
        mesh: the mesh, with device ids.
        placement: its placement on the mesh.
        device_bytes: its bytes on all devices, replicas included.
        computed: done when its values are computed, or have failed to be; None if they are.
        created_at: the moment of its commit, by the table's clock.
        name: its name for the clients of its owner; empty if it has none.
        expires_at: the moment of its end, which only an array with a name has.
        guest: the principal that its name is shared with and that has this handle; empty for the owner's array.
        history: the versions of its name; None if it has none.
        untested: the kernels that it depends on and that had not passed a known-answer test when it was computed.
    """

    handle: bytes
    array_id: int
    epoch: int
    lease: ArrayLease
    type: ArrayType
    mesh: mesh_pb2.Mesh
    placement: kernel_pb2.ArrayPlacement
    device_bytes: int
    computed: Promise[object] | None = None
    created_at: float = 0.0
    name: str = ""
    expires_at: float = math.inf
    guest: str = ""
    history: NameHistory | None = None
    untested: tuple[UntestedKernel, ...] = ()

    @property
    def lease_id(self) -> bytes:
        """The id of its lease."""
        return self.lease.lease_id

    @property
    def owner(self) -> str:
        """The principal that owns it; empty without authentication."""
        return self.lease.owner

    @property
    def is_leased(self) -> bool:
        """True until it is deleted, lost or gets a name."""
        return self.lease.arrays.get(self.handle) is self

    @cached_property
    def placement_key(self) -> bytes:
        """The mesh and the placement; equal for arrays that are placed alike."""
        mesh = self.mesh.SerializeToString(deterministic=True)
        return len(mesh).to_bytes(4, "little") + mesh + self.placement.SerializeToString(deterministic=True)

    def describe(self) -> array_service_pb2.ArrayDescription:
        """Returns the array's description for clients, without its age and its guests."""
        return array_service_pb2.ArrayDescription(
            handle=self.handle,
            mesh=self.mesh,
            placement=self.placement,
            device_bytes=self.device_bytes,
            name=f"{self.owner}/{self.name}" if self.guest else self.name,
            owner=self.owner,
            version=None if self.history is None else version_of(self.history),
        )


class Quota:
    """A limit on a group of resident arrays, by number and by bytes on the devices.

    Args:
        whose: the subject of the error message, "the arrays of …".
        max_arrays: the largest number of arrays.
        limit_bytes: returns the limit in bytes, which may depend on what others hold.
        setting: the name of the setting behind ``limit_bytes``.
        describe_others: returns a part of the error message about the arrays of others; may be empty.

    Attributes:
        arrays: the number of arrays and reservations.
        nbytes: their bytes on the devices.
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

    def check(self, nbytes: int) -> None:
        """Checks that one more array is allowed.

        Raises:
            CallError: RESIDENT_LIMIT.
        """
        if self.arrays >= self._max_arrays:
            raise CallError(
                Reason.RESIDENT_LIMIT,
                f"{self._whose} are {self.arrays}, and {self._max_arrays} are allowed; delete arrays that are not "
                "needed, or start the server with a larger --max-resident-arrays",
                metadata={
                    "limit": "max_resident_arrays",
                    "held_arrays": str(self.arrays),
                    "limit_arrays": str(self._max_arrays),
                },
            )
        limit_bytes = self._limit_bytes(self)
        if self.nbytes + nbytes > limit_bytes:
            raise CallError(
                Reason.RESIDENT_LIMIT,
                f"the array takes {exact(nbytes)} on the devices, and {self._whose} hold {exact(self.nbytes)} of the "
                f"{exact(limit_bytes)} allowed{self._describe_others(self)}; delete arrays that are not needed, or "
                f"start the server with a larger --{self._setting.replace('_', '-')}",
                metadata={
                    "limit": self._setting,
                    "bytes": str(nbytes),
                    "held_bytes": str(self.nbytes),
                    "limit_bytes": str(limit_bytes),
                },
            )


class PrincipalQuota(Quota):
    """A limit on the arrays of one principal, beside which its limits in the token file apply.

    Args:
        owner: the principal.
        limits_of: returns the present limits of a principal.
        *limits: the other arguments of `Quota`.
    """

    def __init__(self, owner: str, limits_of: Callable[[str], PrincipalLimits], *limits: Any) -> None:
        super().__init__(f"the arrays of {shorten(owner)}, through all of its connections,", *limits)
        self._owner = owner
        self._limits_of = limits_of

    def check(self, nbytes: int) -> None:
        """Checks that one more array is allowed.

        Raises:
            CallError: RESIDENT_LIMIT.
        """
        limits = self._limits_of(self._owner)
        if limits.max_arrays is not None and self.arrays >= limits.max_arrays:
            raise CallError(
                Reason.RESIDENT_LIMIT,
                f"{self._whose} are {self.arrays}, and {limits.max_arrays} are allowed {self._remedy('max_arrays')}",
                metadata={
                    "limit": "max_arrays",
                    "held_arrays": str(self.arrays),
                    "limit_arrays": str(limits.max_arrays),
                },
            )
        if limits.max_bytes is not None and self.nbytes + nbytes > limits.max_bytes:
            raise CallError(
                Reason.RESIDENT_LIMIT,
                f"the array takes {exact(nbytes)} on the devices, and {self._whose} hold {exact(self.nbytes)} of the "
                f"{exact(limits.max_bytes)} allowed {self._remedy('max_bytes')}",
                metadata={
                    "limit": "max_bytes",
                    "bytes": str(nbytes),
                    "held_bytes": str(self.nbytes),
                    "limit_bytes": str(limits.max_bytes),
                },
            )
        super().check(nbytes)

    def _remedy(self, limit: str) -> str:
        return (
            f"by {limit} of {shorten(self._owner)} in the server's token file; delete arrays that are not needed, also "
            "those with names, or ask the administrator for a larger limit"
        )


@dataclass(eq=False)
class ArrayLease:
    """The lease that keeps the arrays of one client.

    Attributes:
        owner: the principal that owns it; empty without authentication.
        lease_id: the client's name for it; empty for what holds an owner's arrays with names, which never expires.
        quota: counts its arrays and reservations.
        client_quota: counts those of all leases of its owner; None without authentication.
        arrays: its arrays by handle, oldest first.
        expires_at: the moment of its expiry, by the table's clock.
        min_expires_at: the moment before which it does not expire.
    """

    owner: str
    lease_id: bytes
    quota: Quota
    client_quota: Quota | None = None
    arrays: dict[bytes, ResidentArray] = field(default_factory=dict)
    expires_at: float = 0.0
    min_expires_at: float = -math.inf

    @property
    def quotas(self) -> tuple[Quota, ...]:
        """The quotas that count its arrays, except the server's own."""
        return (self.quota,) if self.client_quota is None else (self.quota, self.client_quota)


class LeaseTable:
    """The leases with arrays or reservations.

    Args:
        lease_s: the duration of a lease after its last renewal.
        max_arrays: the limit of one client in arrays: of all leases of one owner, or of one lease without
            authentication.
        max_bytes: the limit of one lease in bytes on the devices; 0 for the limit of its client.
        clock: a monotonic clock, in seconds.
        max_client_bytes: the limit of one client: of all leases of one owner, or of one lease without authentication;
            0 for `left_bytes`.
        left_bytes: returns the bytes that others leave to a client.
        describe_others: returns the part of an error message that gives the bytes of others.
        limits_of: returns the present limits of a principal in the token file.
    """

    def __init__(
        self,
        lease_s: float,
        max_arrays: int,
        max_bytes: int,
        clock: Callable[[], float],
        max_client_bytes: float,
        left_bytes: Callable[[Quota], int],
        describe_others: Callable[[Quota], str],
        limits_of: Callable[[str], PrincipalLimits] = no_limits,
    ) -> None:
        self._limits_of = limits_of
        self._left_bytes = left_bytes
        self._describe_others = describe_others
        self.lease_s = lease_s
        self._max_arrays = max_arrays
        self._max_bytes = max_bytes
        self._max_client_bytes = max_client_bytes
        self._clients: dict[str, Quota] = {}  # of principals: as many as there are tokens
        self._clock = clock
        # By owner and id. All have the same duration, so the first expires first.
        self._leases: OrderedDict[tuple[str, bytes], ArrayLease] = OrderedDict()
        self._of_names: dict[str, ArrayLease] = {}  # by owner

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, owner: str, lease_id: bytes) -> ArrayLease | None:
        """Returns and renews an owner's lease; None if there is none."""
        lease = self._leases.get((owner, lease_id))
        if lease is not None:
            self.renew(lease)
        return lease

    def get_or_create(self, owner: str, lease_id: bytes) -> ArrayLease:
        """Returns and renews an owner's lease, which is created if there is none."""
        key = (owner, lease_id)
        if key not in self._leases:
            whose, max_bytes = "the arrays of this lease", self._max_bytes
            if max_bytes or owner:
                quota = Quota(whose, self._max_arrays, lambda _: max_bytes or math.inf, "max_resident_bytes_per_lease")
            else:
                quota = Quota(whose, *self._client_limits())
            self._leases[key] = ArrayLease(owner, lease_id, quota, self._client(owner))
        lease = self._leases[key]
        self.renew(lease)
        return lease

    def of_names(self, owner: str) -> ArrayLease:
        """Returns what holds an owner's arrays with names, which is created if there is none."""
        if owner not in self._of_names:
            whose, setting = "the arrays with names", "max_resident_bytes_per_client"
            # Those of a principal are limited by its other quota, which counts them, too.
            quota = (
                Quota(whose, self._max_arrays, lambda _: math.inf, setting)
                if owner
                else Quota(whose, *self._client_limits())
            )
            self._of_names[owner] = ArrayLease(owner, b"", quota, self._client(owner))
        return self._of_names[owner]

    @property
    def named_count(self) -> int:
        """The number of arrays with names."""
        return sum(len(lease.arrays) for lease in self._of_names.values())

    def _client(self, owner: str) -> Quota | None:
        if owner and owner not in self._clients:
            self._clients[owner] = PrincipalQuota(owner, self._limits_of, *self._client_limits())
        return self._clients.get(owner)

    def _client_limits(self) -> tuple[Any, ...]:
        """Returns the arguments of a client's quota."""
        if max_bytes := self._max_client_bytes:
            return self._max_arrays, lambda _: max_bytes, "max_resident_bytes_per_client"
        return self._max_arrays, self._left_bytes, "max_resident_bytes", self._describe_others

    def by_owner(self) -> dict[str, Quota]:
        """Returns the quotas that count all arrays and reservations of principals, those without any left out."""
        return {owner: quota for owner, quota in self._clients.items() if quota.arrays}

    def renew(self, lease: ArrayLease) -> None:
        """Restarts the duration of a lease in the table; arrays with names have none."""
        if not lease.lease_id:
            return
        lease.expires_at = self._clock() + self.lease_s
        self._leases.move_to_end((lease.owner, lease.lease_id))

    def keep(self, lease: ArrayLease, min_s: float) -> None:
        """Sets the seconds from now before which a lease does not expire."""
        lease.min_expires_at = self._clock() + min_s

    def of_owner(self, owner: str) -> list[ArrayLease]:
        """Returns the leases of an owner; renews none."""
        leases = [lease for lease in self._leases.values() if lease.owner == owner]
        return leases if owner not in self._of_names else [*leases, self._of_names[owner]]

    def is_current(self, lease: ArrayLease) -> bool:
        """Returns whether a lease is in the table, and not a later one of the same id."""
        return self._leases.get((lease.owner, lease.lease_id)) is lease

    def remove_if_empty(self, lease: ArrayLease) -> None:
        """Removes a lease without arrays and reservations."""
        if not lease.lease_id and not lease.quota.arrays:
            self._of_names.pop(lease.owner, None)
        elif not lease.quota.arrays and self.is_current(lease):
            del self._leases[lease.owner, lease.lease_id]

    def pop_expired(self) -> ArrayLease | None:
        """Removes and returns an expired lease; None if there is none.

        A lease with a reservation is renewed instead: the call behind it shows that the client is alive. So is one that
        is kept longer, until the first of its expiries after that time.
        """
        while (first := next(iter(self._leases.values()), None)) is not None and first.expires_at <= self._clock():
            if first.quota.arrays == len(first.arrays) and first.min_expires_at <= self._clock():
                return self._leases.pop((first.owner, first.lease_id))
            self.renew(first)
        return None

    def next_expiry_s(self) -> float:
        """Returns the seconds until a lease can expire; a lease created meanwhile does not expire sooner."""
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
            f"lease_id has {len(lease_id)} bytes; use {allowed} random bytes as the id of a lease",
            field="lease_id",
            metadata={"bytes": str(len(lease_id)), "allowed": allowed},
        )
