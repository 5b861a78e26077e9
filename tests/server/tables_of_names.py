"""Tables of resident arrays with names, and checks of what they count."""

import math
from collections import Counter
from typing import Any

import numpy as np

from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_core.layouts.layout import ArrayType
from shardcall_core.wire.token_fields import PrincipalLimits
from shardcall_server.frontend.memory.resident_array_table import Reservation, ResidentArray, ResidentArrayTable

LEASE_S = 60.0
OURS, THEIRS = b"lease of ours, A", b"lease of theirs!" * 4


def commit(of: Reservation, nbytes: int, handle: bytes = b"", device_bytes: int = 0, epoch: int = 1) -> ResidentArray:
    """An array of so many bytes, which may be more on the devices."""
    array_type = ArrayType((nbytes,), np.dtype(np.int8))
    return of.commit(epoch, array_type, mesh_pb2.Mesh(), kernel_pb2.ArrayPlacement(), device_bytes or nbytes, handle)


class Table:
    """A table of at most 100 bytes and 12 arrays, with a clock that stands still.

    Args:
        limits_of: the limits of its principals, which may change.
        max_bytes: the limit of all arrays.
        **more: other arguments of the table.
    """

    def __init__(self, limits_of: dict[str, PrincipalLimits] | None = None, max_bytes: int = 100, **more: Any) -> None:
        self.now = 0.0
        self.deleted: list[ResidentArray] = []
        self.limits_of = limits_of or {}
        usual = {"max_lease_bytes": 0, "lease_s": LEASE_S, "max_client_bytes": math.inf, "max_arrays": 12}
        usual |= {"on_delete": self.deleted.extend, "clock": lambda: self.now}
        self.array_table = ResidentArrayTable(
            lambda: max_bytes, limits_of=lambda owner: self.limits_of.get(owner, PrincipalLimits()), **{**usual, **more}
        )

    def put(
        self, lease_id: bytes = OURS, owner: str = "", nbytes: int = 8, handle: bytes = b"", device_bytes: int = 0
    ) -> ResidentArray:
        """An array of a principal."""
        reservation = self.array_table.reserve(lease_id, device_bytes or nbytes, owner)
        return commit(reservation, nbytes, handle, device_bytes=device_bytes)

    def gauges(self) -> tuple[int, int, int]:
        return self.array_table.count, self.array_table.device_bytes, self.array_table.leases

    def deleted_handles(self) -> list[bytes]:
        return [resident.handle for resident in self.deleted]

    def check_counts(self) -> None:
        """Compares what the quotas have counted with the arrays, and what guests have with the names."""
        table = self.array_table
        there = list(table._by_handle.values())
        assert (table._quota.arrays, table._quota.nbytes) == (len(there), table.device_bytes)
        assert table.device_bytes == sum(resident.device_bytes for resident in there)
        leases = [*table._leases._leases.values(), *table._leases._of_names.values()]
        for lease in leases:
            assert lease.arrays
            assert lease.quota.arrays == len(lease.arrays)
            assert lease.quota.nbytes == sum(resident.device_bytes for resident in lease.arrays.values())
            assert all(resident.lease is lease and not resident.guest for resident in lease.arrays.values())
        assert sum(len(lease.arrays) for lease in leases) == len(there)
        counts = Counter(resident.owner for resident in there if resident.owner)
        assert counts == +Counter({name: quota.arrays for name, quota in table._leases._clients.items()})
        self._check_guests()

    def _check_guests(self) -> None:
        table = self.array_table
        names, guests = table._names._arrays, table._names.guests
        assert guests._guests.keys() <= names.keys()
        seen = {
            (principal, guest.array.handle): guest.array
            for key, of_name in guests._guests.items()
            for principal, guest in of_name.items()
            if guest.array.array_id == names[key].array_id and guest.array.guest == principal
        }
        assert guests._arrays == seen
        assert guests._counts == Counter(owner for (owner, _), of_name in guests._guests.items() for _ in of_name)
        assert sum(map(len, guests._names.values())) == len(seen)
        assert table._by_handle.keys().isdisjoint(seen)
