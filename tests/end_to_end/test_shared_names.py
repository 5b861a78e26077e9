"""Arrays with names that one principal shares with another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from rows import rows
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import aio
from shardcall_core.wire import token_file

X = np.arange(32.0).reshape(8, 4)
US = token_file.user_name()
SHARED = f"{US}/u"


@pytest.fixture(scope="module")
def naming() -> Iterator[ServerProcess]:
    """A server whose leases end after 2 s, of which one client may have 30 arrays."""
    with running_server("--lease-s", "2", "--max-resident-arrays", "40", why="its leases are short") as running:
        yield running


@pytest.fixture
def ours(naming) -> Iterator[sc.Client]:
    with sc.connect(naming.address) as client:
        yield client
        client.delete(*client.list(of_all_clients=True))


@pytest.fixture
def guest(naming, call_stream) -> Iterator[sc.Client]:
    """A client of another principal, with and without a call stream."""
    with sc.connect(naming.address, token=token_of("guest"), call_stream=call_stream) as client:
        yield client


@pytest.fixture
def other(naming) -> Iterator[sc.Client]:
    """A client of a third principal."""
    with sc.connect(naming.address, token=token_of("owner")) as client:
        yield client


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


def test_a_guest_that_may_not_write_is_refused(ours, guest):
    h = ours.put(X, name="u")
    ours.share("u", with_="guest")
    g = guest.open(SHARED)

    def clear(x):
        x[0] = 0

    def add():
        nonlocal g
        g += 1

    for write in (lambda: g.__setitem__(0, 5), add, lambda: np.add(g, 1, out=g), lambda: guest.jit(clear)(g)):
        with pytest.raises(sc.AccessDeniedError, match="is shared with this principal for reading") as error:
            write()
        assert error.value.reason == "ARRAY_READ_ONLY"
    same(h.get(), X)
    same(g.get(), X)
    same((g + 1).get(), X + 1)


def test_what_a_guest_wrote_stays_without_the_guest(naming, ours):
    h = ours.put(X, name="u")
    ours.share("u", with_="guest", write=True)
    with sc.connect(naming.address, token=token_of("guest")) as guest:
        g = guest.open(SHARED)
        g += 1
        handle = g.handle
    wait_for(lambda: ours.usage().arrays == 1)
    same(h.get(), X + 1)
    with sc.connect(naming.address, token=token_of("guest")) as guest:
        same(guest.get(handle), X + 1)
    h.delete()
    assert ours.usage().arrays == 0


def test_an_array_is_refused_as_missing_when_it_is_no_longer_shared(ours, guest, call_stream):
    ours.put(X, name="u")
    ours.share("u", with_="guest", write=True)
    g = guest.open(SHARED)
    handle, done = g.handle, g + 2
    done.get()
    recorded = g + 1
    ours.unshare("u", with_="guest")
    for use in (
        g.get,
        lambda: guest.get(handle),
        lambda: guest.describe(handle),
        lambda: guest.open(SHARED),
        lambda: g + 1,
        lambda: g.__setitem__(0, 1),
        *([recorded.get] if call_stream else []),  # else it has been computed
    ):
        with pytest.raises(sc.ArrayLostError):
            use()
    same(done.get(), X + 2)
    assert guest.list(of_all_clients=True).entries[-1].owner != US
    ours.share("u", with_="guest")
    with pytest.raises(sc.ArrayLostError):
        guest.get(handle)
    same(g.get(), X)
    ours.unshare("u")
    with pytest.raises(sc.ArrayLostError):
        g.get()


def test_a_guest_cannot_delete_name_or_share(ours, guest):
    h = ours.put(X, name="u")
    ours.share("u", with_="guest", write=True)
    g = guest.open(SHARED)
    with pytest.raises(sc.InvalidOperandError, match=f"belongs to the principal '{US}'"):
        guest.name(g, "mine")
    g.delete()
    assert guest.delete(guest.put(X), g, *guest.list()) == 1
    assert guest.delete(g.handle, h.handle) == 0
    for refused in (lambda: guest.name(g.handle, "mine"), lambda: guest.share("u", with_="owner")):
        with pytest.raises(sc.ArrayLostError):
            refused()
    for name in (SHARED, "../u", "a/b/c", "ü", "x" * 65):
        with pytest.raises(sc.InvalidParameterError, match="give 1 to 64 ASCII letters, digits"):
            guest.share(name, with_="owner")
    same(h.get(), X)
    same(g.get(), X)


def test_lists_show_who_shares_what(ours, guest, other):
    ours.put(X, name="u")
    ours.put(X, name="mine")
    ours.share("u", with_="guest", write=True)
    ours.share("u", with_="owner")
    ours.share("u", with_="not-there-yet")
    u, mine = ours.list().entries
    assert [str(entry) for entry in u.guests] == ["guest (write)", "not-there-yet", "owner"]
    assert mine.guests == ()
    assert "guest (write), not-there-yet, owner" in str(ours.list())
    for listed in (guest.list(), guest.list(of_all_clients=True)):
        (entry,) = listed.entries
        assert (entry.name, entry.owner, entry.type) == (SHARED, US, u.type)
        assert [str(entry) for entry in entry.guests] == ["guest (write)"]
        same(listed[0].get(), X)
    assert [entry.name for entry in other.list().entries] == [SHARED]
    assert all("not-there-yet" not in str(client.list()) for client in (guest, other))


def test_a_stranger_learns_nothing(ours, other):
    h = ours.put(X, name="u")
    ours.share("u", with_="guest")
    messages = set()
    for name in (SHARED, f"{US}/v", "nobody/u", "u"):
        with pytest.raises(sc.ArrayLostError) as error:
            other.open(name)
        messages.add(error.value.message.replace(repr(name), "…"))
    assert len(messages) == 1
    with pytest.raises(sc.ArrayLostError):
        other.get(h.handle)
    for name in (f"{US}/", f"{US}/u/", f"{US}/../u\0"):
        with pytest.raises(sc.InvalidParameterError):
            other.open(name)


@rows("principal", ["", "a/b", "../u", "ü", "x" * 65, 3, None])
def test_a_name_is_shared_with_a_principal(ours, principal):
    with pytest.raises(sc.InvalidParameterError, match="principal"):
        ours.share("u", with_=principal)


def test_a_name_that_stands_for_nothing_cannot_be_shared(ours):
    for refused in (lambda: ours.share("nothing", with_="guest"), lambda: ours.unshare("nothing")):
        with pytest.raises(sc.ArrayLostError, match="no array has the name 'nothing'"):
            refused()
    ours.put(X, name="u")
    with pytest.raises(sc.InvalidParameterError, match="which the array belongs to"):
        ours.share("u", with_=US)


def test_an_asynchronous_client_shares_names_and_lists_the_same_table(naming, ours):
    async def main() -> None:
        async with aio.connect(naming.address) as client:
            h = await client.put(X, name="u")
            await client.share("u", with_="guest")
            table = await client.list()
            assert table.entries[0].guests == ours.list().entries[0].guests != ()
            assert str(table).splitlines()[0] == str(ours.list()).splitlines()[0]
            assert "guest" in table._repr_html_()
            same(await table[0].get(), X)
            await client.unshare("u", with_="guest")
            assert (await client.list()).entries[0].guests == ()
            await h.delete()

    asyncio.run(main())
