"""Names of resident arrays."""

import math

import pytest
from server.conftest import refusal, refused
from server.tables_of_names import OURS, Table

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


def test_without_principals_arrays_with_names_have_one_limit(table):
    for i in range(9):
        table.array_table.name(table.put(bytes([i]) * 16, nbytes=1).handle, f"u{i}")
    another = table.put(nbytes=1)
    with refused(Reason.RESIDENT_LIMIT, "the arrays with names are 9, and 9 are allowed"):
        table.array_table.name(another.handle, "v")
    table.array_table.name(another.handle, "u0", replaces=True)
    assert [resident.handle for resident in table.array_table.of_lease(OURS)] == []
    assert table.array_table.count == 9


def test_a_mesh_that_ends_takes_its_names_along(table):
    table.array_table.name(table.put().handle, "u", keep_s=5)
    table.array_table.remove_epoch(1)
    assert "or the mesh or the server restarted" in refusal(table.array_table.open, "u").message
    assert table.array_table.of_names("") == []
    table.now = 5.0
    assert table.array_table.expire() == []
    assert table.array_table.next_expiry_s() > 0
    assert math.isfinite(table.array_table.next_expiry_s())
