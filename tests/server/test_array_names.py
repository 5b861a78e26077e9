"""Names of resident arrays."""

import math

import pytest
from server.conftest import refusal, refused
from server.tables_of_names import OURS, THEIRS, Table

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
