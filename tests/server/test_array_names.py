"""Names of resident arrays."""

import math

import pytest
from server.refusals import refusal, refused
from server.tables_of_names import LEASE_S, OURS, THEIRS, Table

from shardcall_core.call_error import Reason
from shardcall_server.frontend.memory.array_names import address_of, check_name


@pytest.fixture
def table() -> Table:
    return Table()


def test_names_are_letters_digits_and_three_signs():
    for name in ("u", "A.b_c-9", "x" * 64, "..", "-"):
        check_name(name)
    for name in ("", "x" * 65, "a/b", "a b", "ü", "a\n", "a\0", "a:b"):
        with refused(Reason.INVALID_PARAMETER, "give 1 to 64 ASCII letters, digits", "name"):
            check_name(name)


def test_an_address_names_the_caller_or_another_principal():
    assert address_of("u", "me") == ("me", "u")
    assert address_of("you/u", "me") == ("you", "u")
    assert address_of("a/b/u", "me") == ("a/b", "u")
    refusal(address_of, "you/", "me")


def test_an_array_with_a_name_outlives_its_lease_and_a_dropped_handle(table):
    named, other = table.put(), table.put()
    table.array_table.name(named.handle, "u")
    gone = table.put()
    assert table.array_table.delete([named.handle, gone.handle], with_named=False) == [gone]
    table.deleted.clear()
    table.now = 2 * LEASE_S
    assert (table.array_table.open("u").array_id, table.deleted_handles()) == (named.array_id, [other.handle])
    assert (table.array_table.leases, table.array_table.count) == (0, 1)
    table.array_table.delete([named.handle])
    with refused(Reason.ARRAY_LOST, "no array has the name 'u'", "name"):
        table.array_table.open("u")


def test_the_time_of_a_name_ends(table):
    named, forever = table.put(), table.put()
    table.array_table.name(named.handle, "u", keep_s=5)
    table.array_table.name(forever.handle, "v")
    assert table.array_table.next_expiry_s() == 5
    assert table.array_table.describe(table.array_table.open("u")).expires_in_seconds == 5
    assert not table.array_table.describe(table.array_table.open("v")).HasField("expires_in_seconds")
    table.now = 4.0
    table.array_table.find(named.handle)  # no use renews it
    table.now = 5.0
    assert [resident.handle for resident in table.array_table.expire()] == [named.handle]
    assert table.array_table.open("v").handle == forever.handle


def test_an_array_has_the_name_and_the_time_that_were_last_set(table):
    named = table.put()
    for keep_s in [5.0] * 100 + [9.0]:
        table.array_table.name(named.handle, "u", keep_s=keep_s)
    table.now = 8.0
    assert table.array_table.open("u").handle == named.handle
    table.array_table.name(named.handle, "v")
    table.now = 1e6
    assert [resident.name for resident in table.array_table.of_names("")] == ["v"]
    assert table.array_table.open("v").handle == named.handle


def test_a_taken_name_is_refused_unless_it_is_to_be_replaced(table):
    before, after = table.put(), table.put()
    table.array_table.name(before.handle, "u")
    with refused(Reason.NAME_TAKEN, "stands for another array; use another name, delete that array by", "name"):
        table.array_table.name(after.handle, "u")
    table.array_table.name(before.handle, "u")  # its own name
    table.array_table.name(after.handle, "u", replaces=True)
    assert (table.array_table.open("u").handle, table.deleted_handles()) == (after.handle, [before.handle])


def test_a_write_replaces_the_array_that_it_was_computed_from_alone(table):
    before, after, late = table.put(), table.put(), table.put(THEIRS)
    table.array_table.name(before.handle, "u", keep_s=500)
    table.now = 10.0
    for _ in range(2):  # a request that is repeated
        table.array_table.name(after.handle, "u", expected=before.handle, lease_id=OURS)
        assert table.array_table.open("u").handle == after.handle
    assert [resident.handle for resident in table.array_table.of_lease(OURS)] == [before.handle]
    assert table.array_table.describe(table.array_table.open("u")).expires_in_seconds == 490
    with refused(Reason.NAME_TAKEN, "another client has written to the array named 'u' meanwhile"):
        table.array_table.name(late.handle, "u", expected=before.handle, lease_id=THEIRS)
    assert table.array_table.open("u").handle == after.handle
    assert not table.deleted


def test_names_of_principals_are_apart(table):
    ours, theirs = table.put(owner="we"), table.put(owner="they")
    table.array_table.name(ours.handle, "u", "we")
    table.array_table.name(theirs.handle, "u", "they")
    table.array_table.name(table.put(owner="they").handle, "v", "they")
    assert {table.array_table.open(name, "we").handle for name in ("u", "we/u")} == {ours.handle}
    refusals = []
    for name in ("they/v", "they/w", "nobody/v"):
        error = refusal(table.array_table.open, name, "we")
        refusals.append((error.reason, error.message.replace(name, "…"), {*error.metadata}))
    assert refusals == [refusals[0]] * 3
    assert refusal(table.array_table.name, theirs.handle, "w", "we").reason is Reason.ARRAY_LOST
    assert {resident.handle for resident in table.array_table.of_owner("we")} == {ours.handle}


def test_without_principals_arrays_with_names_have_one_limit(table):
    for i in range(9):
        table.array_table.name(table.put(bytes([i]) * 16, nbytes=1).handle, f"u{i}")
    another = table.put(nbytes=1)
    with refused(Reason.RESIDENT_LIMIT, "the arrays with names are 9, and 9 are allowed"):
        table.array_table.name(another.handle, "v")
    table.array_table.name(another.handle, "u0", replaces=True)
    assert [resident.handle for resident in table.array_table.of_lease(OURS)] == []
    assert table.array_table.count == 9


def test_the_largest_array_that_a_client_may_have_may_have_a_name(table):
    large = table.put(nbytes=75)
    table.array_table.name(large.handle, "u")
    assert table.array_table.device_bytes == 75
    table.array_table.delete([large.handle])
    assert table.array_table.device_bytes == 0
    table.put(nbytes=75)


def test_a_mesh_that_ends_takes_its_names_along(table):
    table.array_table.name(table.put().handle, "u", keep_s=5)
    table.array_table.remove_epoch(1)
    assert "or the mesh or the server restarted" in refusal(table.array_table.open, "u").message
    assert table.array_table.of_names("") == []
    table.now = 5.0
    assert table.array_table.expire() == []
    assert table.array_table.next_expiry_s() > 0
    assert math.isfinite(table.array_table.next_expiry_s())
