"""Names of arrays that principals share."""

import random
from contextlib import suppress

import pytest
from rows import rows
from server.conftest import on_threads, refusal, refused
from server.tables_of_names import LEASE_S, OURS, THEIRS, Table

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.memory.array_guests import MAX_GUESTS, MAX_GUESTS_OF_OWNER
from shardcall_server.frontend.memory.resident_array_table import ResidentArray


class SharedTable(Table):
    """A table in which ``we`` have an array named ``u``, which they may read, or write to."""

    def __init__(self, *, may_write: bool = False, device_bytes: int = 8, **limits: float) -> None:
        super().__init__(**limits)
        self.ours = self.put(owner="we", device_bytes=device_bytes)
        self.array_table.name(self.ours.handle, "u", "we", keep_s=500)
        self.array_table.share("u", "we", "they", may_write=may_write)

    def seen(self) -> ResidentArray:
        """The array as they have it."""
        return self.array_table.open("we/u", "they")

    def write(self, new: ResidentArray, expected: bytes, lease_id: bytes = THEIRS) -> ResidentArray:
        return self.array_table.name(new.handle, "we/u", "they", expected=expected, lease_id=lease_id)

    def is_lost(self, handle: bytes, principal: str = "they") -> bool:
        with suppress(CallError):
            self.array_table.find(handle, principal)
            return False
        return True


@pytest.fixture
def table() -> SharedTable:
    return SharedTable()


@pytest.fixture
def writable() -> SharedTable:
    return SharedTable(may_write=True)


def test_a_guest_has_another_handle_than_the_owner(table):
    seen = table.seen()
    assert table.array_table.find(seen.handle, "they").array_id == table.ours.array_id
    assert seen.handle != table.ours.handle
    assert table.is_lost(table.ours.handle)
    assert all(table.is_lost(seen.handle, principal) for principal in ("we", "others", ""))
    assert "no array has the name 'we/u'" in refusal(table.array_table.open, "we/u", "others").message
    table.check_counts()


def test_a_guest_can_neither_delete_name_nor_share(table):
    handle = table.seen().handle
    assert table.array_table.delete([handle, table.ours.handle], "they") == []
    for forbidden in (
        lambda: table.array_table.name(handle, "mine", "they"),
        lambda: table.array_table.name(table.put(owner="they").handle, "we/u", "they", replaces=True),
        lambda: table.array_table.share("we/u", "they", "others"),
        lambda: table.array_table.share("u", "they", "others"),
        lambda: table.array_table.unshare("u", "they"),
        lambda: table.array_table.unshare("we/u", "they"),
    ):
        assert refusal(forbidden).reason in {Reason.ARRAY_LOST, Reason.INVALID_PARAMETER}
    assert table.array_table.open("u", "we").handle == table.ours.handle
    table.check_counts()


def test_a_name_stays_shared_when_a_write_replaces_the_array(table):
    before = table.seen().handle
    new = table.put(owner="we")
    table.array_table.name(new.handle, "u", "we", expected=table.ours.handle, lease_id=OURS)
    assert table.is_lost(before)
    assert table.seen().array_id == new.array_id
    third = table.put(owner="we")
    table.array_table.name(third.handle, "u", "we", replaces=True)
    assert table.seen().array_id == third.array_id
    table.check_counts()


def test_an_array_that_stays_keeps_its_handles(table):
    before = table.seen().handle
    table.array_table.name(table.ours.handle, "u", "we", keep_s=7)
    table.array_table.share("u", "we", "they", may_write=True)
    assert table.seen().handle == before
    assert table.array_table.describe(table.seen()).expires_in_seconds == 7
    table.check_counts()


@rows(
    ("what", "end"),
    [
        ("delete", lambda table: table.array_table.delete([table.ours.handle], "we")),
        ("rename", lambda table: table.array_table.name(table.ours.handle, "v", "we")),
        ("expire", lambda table: setattr(table, "now", 500.0)),
        ("restart", lambda table: table.array_table.remove_epoch(1)),
    ],
)
def test_what_ends_a_name_ends_its_guests(what, end):
    table = SharedTable()
    handle = table.seen().handle
    end(table)
    assert table.is_lost(handle)
    assert table.array_table.of_names("they") == []
    assert "no array has the name" in refusal(table.seen).message
    if what != "restart":
        table.array_table.name(table.put(owner="we").handle, "u", "we")  # which is not shared
        assert table.array_table.of_names("they") == []
    table.check_counts()


def test_unsharing_ends_the_handle_at_once(table):
    table.array_table.share("u", "we", "others")
    handle, other = table.seen().handle, table.array_table.open("we/u", "others").handle
    for _ in range(2):
        table.array_table.unshare("u", "we", "they")
        assert table.is_lost(handle)
        assert not table.is_lost(other, "others")
    table.array_table.share("u", "we", "they")
    assert table.is_lost(handle)
    assert table.seen().handle != handle
    table.array_table.unshare("u", "we")
    assert table.is_lost(other, "others")
    assert table.array_table.describe(table.array_table.open("u", "we")).guests == []
    table.check_counts()


def test_a_write_of_a_guest_becomes_the_owners_array(writable):
    before, new = writable.seen(), writable.put(THEIRS, "they")
    writable.now = 10.0
    writable.put(THEIRS, "they")
    for _ in range(2):  # a request that is repeated
        written = writable.write(new, before.handle)
        assert (written.handle, written.array_id, written.owner) == (new.handle, new.array_id, "we")
        writable.check_counts()
    there = writable.array_table.open("u", "we")
    assert (there.array_id, there.owner) == (new.array_id, "we")
    assert there.handle != new.handle  # which the guest has chosen
    assert writable.array_table.describe(there).expires_in_seconds == 490
    (*_, left) = writable.array_table.of_lease(THEIRS, "they")
    assert (left.array_id, left.handle, left.owner) == (writable.ours.array_id, before.handle, "they")
    assert writable.is_lost(writable.ours.handle, "we")
    assert not writable.deleted
    writable.now = LEASE_S + 11
    writable.array_table.expire()
    assert writable.array_table.open("u", "we").array_id == new.array_id
    writable.deleted.clear()
    last = writable.put(owner="they")
    writable.write(last, writable.seen().handle, lease_id=b"")
    assert [resident.array_id for resident in writable.deleted] == [new.array_id], "no lease is to have it"
    assert writable.seen().array_id == last.array_id
    writable.check_counts()


def test_a_write_is_refused_that_is_not_allowed_or_not_of_these_values(table):
    new, expected = table.put(THEIRS, "they"), table.seen().handle
    with pytest.raises(CallError, match=r"the array 'we/u' is shared with this principal for reading; write to a copy"):
        table.write(new, expected)
    table.array_table.share("u", "we", "they", may_write=True)
    for handle, reason in ((table.ours.handle, "NAME_TAKEN"), (bytes(16), "NAME_TAKEN"), (expected, "INVALID_OPERAND")):
        other = table.put(THEIRS, "they", 9)
        assert refusal(table.write, other, handle).reason == reason
        table.array_table.delete([other.handle], "they")
    larger = table.put(THEIRS, "they", device_bytes=24)
    with refused(Reason.INVALID_OPERAND, r"with 24 bytes on the devices, and the array 'we/u' is int8.* no more"):
        table.write(larger, expected)
    with refused(Reason.ARRAY_LOST, field="handle"):
        table.array_table.name(table.ours.handle, "we/u", "they", expected=expected)
    assert table.seen().handle == expected
    table.array_table.unshare("u", "we")
    assert "no array has the name 'we/u'" in refusal(table.write, new, expected).message
    for refused_array in (new, larger):
        assert table.array_table.find(refused_array.handle, "they").owner == "they"
    table.check_counts()


def test_a_write_that_leaves_the_guest_too_much_is_refused():
    table = SharedTable(may_write=True, device_bytes=32, max_client_bytes=40)
    new = table.put(THEIRS, "they")
    table.put(THEIRS, "they", 20)
    assert "the arrays of they" in refusal(table.write, new, table.seen().handle).message
    table.check_counts()
    table.write(new, table.seen().handle, b"")
    table.check_counts()


def test_a_guest_that_chooses_a_handle_of_the_owner_replaces_nothing_else(writable):
    handle = b"chosen by owner!"
    mine = writable.put(owner="we", handle=handle)
    writable.write(writable.put(THEIRS, "they", handle=handle), writable.seen().handle)
    assert writable.array_table.find(handle, "we") is mine
    assert "has one of the result handles already" in refusal(writable.put, THEIRS, "they", handle=handle).message
    writable.check_counts()


def test_owners_cannot_pass_an_array_off_as_anothers(table):
    table.array_table.name(table.put(owner="others", handle=table.ours.handle).handle, "u", "others")
    table.array_table.share("u", "others", "they")
    seen = {table.seen().handle, table.array_table.open("others/u", "they").handle}
    assert len(seen) == 2
    assert {table.array_table.find(handle, "they").owner for handle in seen} == {"we", "others"}
    table.check_counts()


def test_the_number_of_guests_is_limited():
    table = Table(max_arrays=1000)
    for i in range(MAX_GUESTS_OF_OWNER // MAX_GUESTS + 1):
        table.array_table.name(table.put(owner="we", nbytes=1).handle, f"u{i}", "we")
    for i in range(MAX_GUESTS_OF_OWNER):
        table.array_table.share(f"u{i // MAX_GUESTS}", "we", f"p{i}")
    for name in ("u0", f"u{MAX_GUESTS_OF_OWNER // MAX_GUESTS}"):
        with refused(Reason.RESIDENT_LIMIT, "64 of a name and 1024 of all are allowed"):
            table.array_table.share(name, "we", "one-more")
    table.array_table.share("u0", "we", "p0", may_write=True)
    table.array_table.unshare("u0", "we", "p0")
    table.array_table.share("u0", "we", "one-more")
    table.check_counts()


@rows("principal", ["", "a/b", "../we", "-a", "ü", "x" * 65, "a b", "a\n", "we"])
def test_a_guest_has_the_name_of_another_principal(table, principal):
    with refused(Reason.INVALID_PARAMETER, field="principal") as error:
        table.array_table.share("u", "we", principal)
    assert len(error.value.message) < 400


def test_without_principals_nothing_is_shared():
    table = Table()
    table.array_table.name(table.put().handle, "u")
    for change in (lambda: table.array_table.share("u", "", "they"), lambda: table.array_table.unshare("u", "")):
        with refused(Reason.NOT_SUPPORTED, "does not authenticate its callers"):
            change()


@rows("seed", range(5))
def test_whatever_principals_do_the_counts_are_right(seed):
    """Random changes by three principals of names that they share."""
    rng, table = random.Random(seed), Table(max_bytes=60)
    act = _actions(table, rng)
    refusals = 0
    for _ in range(400):
        try:
            act()
        except CallError:
            refusals += 1
        table.check_counts()
    assert 0 < refusals < 400


def test_principals_share_write_and_delete_at_once():
    table = Table(max_bytes=10_000, max_arrays=10_000)

    def work(seed: int) -> None:
        act = _actions(table, random.Random(seed))
        for _ in range(300):
            with suppress(CallError):
                act()

    on_threads(work, range(4))
    table.check_counts()


def _actions(table, rng):
    """A function that makes one random change."""
    principals, names = ("we", "they", "others"), ("u", "v")
    leases = (OURS, THEIRS)

    def write(me):
        address = rng.choice([f"{rng.choice(principals)}/{rng.choice(names)}", rng.choice(names)])
        seen = table.array_table.open(address, me)
        new = table.put(rng.choice(leases), me, 4)
        lease_id = rng.choice((b"", rng.choice(leases)))
        table.array_table.name(new.handle, address, me, expected=seen.handle, lease_id=lease_id)

    def act():
        me, name = rng.choice(principals), rng.choice(names)
        action = rng.randrange(8)
        if action == 0:
            table.put(rng.choice(leases), rng.choice(principals), 4, device_bytes=rng.choice((4, 6)))
        elif action == 1 and (there := table.array_table.of_owner(me)):
            replaces, keep_s = rng.random() < 0.5, rng.choice((0.0, 30.0))
            table.array_table.name(rng.choice(there).handle, name, me, replaces=replaces, keep_s=keep_s)
        elif action == 2:
            table.array_table.share(name, me, rng.choice(principals), may_write=rng.random() < 0.7)
        elif action == 3:
            table.array_table.unshare(name, me, rng.choice(("", *principals)))
        elif action == 4 and (there := table.array_table.of_owner(me)):
            table.array_table.delete([rng.choice(there).handle], me)
        elif action == 5 and rng.random() < 0.1:
            table.now += rng.choice((5.0, 70.0))
            table.array_table.expire()
        else:
            write(me)

    return act
