"""Leases that are kept without a client, by a clock that the tests set."""

from __future__ import annotations

from server.test_resident_array_table import LEASE_S, OURS, THEIRS, Table, handles


def test_a_lease_that_is_kept_outlasts_its_duration_and_no_more():
    table = Table()
    kept, other = table.put(OURS), table.put(THEIRS)
    assert table.array_table.renew(OURS, min_s=35.0)
    for now, handles_left in ((LEASE_S, [kept.handle]), (34.0, [kept.handle]), (35.0 + LEASE_S, [])):
        table.now = now
        table.array_table.expire()
        assert handles(table.array_table.of_owner("")) == handles_left
    assert table.deleted == [other, kept]
    assert (table.array_table.count, table.array_table.leases) == (0, 0)


def test_another_time_replaces_the_one_for_which_a_lease_is_kept():
    table = Table()
    table.put(OURS)
    table.array_table.renew(OURS, min_s=1000.0)
    table.array_table.renew(OURS)  # leaves it
    table.array_table.renew(OURS, min_s=1.0)
    table.now = LEASE_S
    assert len(table.array_table.expire()) == 1


def test_the_arrays_of_an_owner_are_listed_oldest_first_without_renewal():
    table = Table()
    first, second = table.put(THEIRS), table.put(OURS)
    table.now = LEASE_S - 1
    assert handles(table.array_table.of_owner("")) == handles([first, second])
    assert table.array_table.of_owner("other") == []
    table.now = LEASE_S
    assert len(table.array_table.expire()) == 2
