"""Arrays with names that one principal shares with another."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.filing import same
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from rows import rows

import shardcall as sc
from shardcall import P, aio
from shardcall_core.wire import token_file

X = np.arange(32.0).reshape(8, 4)
US = token_file.user_name()
SHARED = f"{US}/u"


@pytest.fixture
def guest(leasing_server, call_stream) -> Iterator[sc.Client]:
    """A client of another principal, with and without a call stream."""
    with sc.connect(leasing_server.address, token=token_of("guest"), call_stream=call_stream) as client:
        yield client


@pytest.fixture
def other(leasing_server) -> Iterator[sc.Client]:
    """A client of a third principal."""
    with sc.connect(leasing_server.address, token=token_of("owner")) as client:
        yield client


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


def test_what_a_guest_wrote_stays_without_the_guest(leasing_server, ours):
    h = ours.put(X, name="u")
    ours.share("u", with_="guest", write=True)
    with sc.connect(leasing_server.address, token=token_of("guest")) as guest:
        g = guest.open(SHARED)
        g += 1
        handle = g.handle
    wait_for(lambda: ours.usage().arrays == 1)
    same(h.get(), X + 1)
    with sc.connect(leasing_server.address, token=token_of("guest")) as guest:
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


def test_an_asynchronous_client_opens_and_shares_names_and_lists_the_same_table(leasing_server, ours):
    async def main() -> None:
        async with aio.connect(leasing_server.address) as client:
            h = await client.put(X, name="v")
            await client.name(h, "u")
            assert h.name == "u"
            same(await (await client.open("u")).get(), X)
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


PLACED = {"mesh": sc.Mesh(x=8), "spec": P("x", None)}


def test_a_guest_uses_the_array_in_every_call(ours, guest):
    h = ours.put(X, **PLACED, name="u")
    with pytest.raises(sc.ArrayLostError):
        guest.open(SHARED)
    ours.share("u", with_="guest")
    g = guest.open(SHARED)
    assert (g.name, g.type, g.mesh, g.spec) == (SHARED, h.type, h.mesh, h.spec)
    assert g.handle != h.handle
    same(g.get(), X)
    same(guest.get(g.handle), X)
    assert guest.describe(g).name == guest.describe(g.handle).name == SHARED
    same(guest.diff(g, axis=0).array, np.diff(X, axis=0))
    same(guest.submit("diff", g, axis=0).get(), np.diff(X, axis=0))
    same(((g + 1) * g).get(), (X + 1) * X)
    same(g[2:4].get(), X[2:4])
    same(g.copy().get(), X)
    same(np.concatenate([g, g]).get(), np.concatenate([X, X]))
    same(guest.jit(lambda x: x * 2 + 1)(g).get(), X * 2 + 1)
    large = np.ones((1 << 16, 4))
    same(guest.matmul(large, g[:4]).array, large @ X[:4])  # chunks beside it
    assert guest.plan("diff", g, axis=0).mesh == h.mesh
    same(guest.compile("diff", g, axis=0)().array, np.diff(X, axis=0))
    same(guest.reshard(g, spec=P(None, None), keep=True).array.get(), X)


def test_a_guest_that_may_write_writes_for_all(ours, guest, other):
    h = ours.put(X, **PLACED, name="u")
    ours.share("u", with_="guest", write=True)
    ours.share("u", with_="owner")
    g, o = guest.open(SHARED), other.open(SHARED)
    before, computed = g.copy(), g * 2
    expected = X.copy()
    g[1:3] = 7
    expected[1:3] = 7
    for array in (h, g, o, ours.open("u"), guest.open(SHARED)):
        same(array.get(), expected)
    same(before.get(), X)
    same(computed.get(), X * 2)
    h += 1
    g *= 2
    np.add(g, 1, out=g)
    expected = (expected + 1) * 2 + 1
    same(o.get(), expected)
    same(h.get(), expected)
    assert (h.name, h.spec, g.spec) == ("u", P("x", None), P("x", None))
    (entry,) = (entry for entry in ours.list().entries if entry.name)
    assert (entry.name, entry.owner) == ("u", US)
    ours.share("u", with_="guest")
    with pytest.raises(sc.AccessDeniedError):
        g += 1
