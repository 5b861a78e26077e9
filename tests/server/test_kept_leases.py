"""Leases that are kept without a client, by a clock that the tests set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardcall.v1 import kernel_pb2, mesh_pb2
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.frontend.memory.resident_array_table import ResidentArray, ResidentArrayTable

OURS, THEIRS = b"o" * 16, b"t" * 64
LEASE_S = 10.0
TYPE = ArrayType((16,), np.dtype("int8"))


class KeptTable:
    """A table, its clock, and the deletions of which its mesh was notified."""

    def __init__(self) -> None:
        self.now = 0.0
        self.deleted: list[ResidentArray] = []
        self.array_table = ResidentArrayTable(lambda: 100, 70, LEASE_S, self.deleted.extend, lambda: self.now)

    def put(self, lease_id: bytes) -> ResidentArray:
        reservation = self.array_table.reserve(lease_id, 16)
        return reservation.commit(7, TYPE, mesh_pb2.Mesh(), kernel_pb2.ArrayPlacement(), 16)


def handles(arrays: Sequence[ResidentArray]) -> list[bytes]:
    return [resident.handle for resident in arrays]


def test_a_lease_that_is_kept_outlasts_its_duration_and_no_more():
    table = KeptTable()
    kept, other = table.put(OURS), table.put(THEIRS)
    assert table.array_table.renew(OURS, min_s=35.0)
    for now, handles_left in ((LEASE_S, [kept.handle]), (34.0, [kept.handle]), (35.0 + LEASE_S, [])):
        table.now = now
        table.array_table.expire()
        assert handles(table.array_table.of_owner("")) == handles_left
    assert table.deleted == [other, kept]
    assert (table.array_table.count, table.array_table.leases) == (0, 0)


def test_another_time_replaces_the_one_for_which_a_lease_is_kept():
    table = KeptTable()
    table.put(OURS)
    table.array_table.renew(OURS, min_s=1000.0)
    table.array_table.renew(OURS)  # leaves it
    table.array_table.renew(OURS, min_s=1.0)
    table.now = LEASE_S
    assert len(table.array_table.expire()) == 1


def test_the_arrays_of_an_owner_are_listed_oldest_first_without_renewal():
    table = KeptTable()
    first, second = table.put(THEIRS), table.put(OURS)
    table.now = LEASE_S - 1
    assert handles(table.array_table.of_owner("")) == handles([first, second])
    assert table.array_table.of_owner("other") == []
    table.now = LEASE_S
    assert len(table.array_table.expire()) == 2
