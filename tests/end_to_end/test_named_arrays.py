"""Arrays with names, which clients of one principal share."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
from client_parts import transport_of
from end_to_end.filing import same
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall import P
from shardcall._src.rpc.deadline import Deadline
from shardcall.v1 import array_service_pb2

X = np.arange(32.0).reshape(8, 4)
PLACED = {"mesh": sc.Mesh(x=8), "spec": P("x", None)}


@pytest.fixture
def others(leasing_server) -> Iterator[sc.Client]:
    """Another client of the same principal."""
    with sc.connect(leasing_server.address) as client:
        yield client


def test_a_name_opens_the_array_in_another_client(ours, others):
    h = ours.put(X, **PLACED, name="u")
    g = others.open("u")
    assert (h.name, g.name, g.handle) == ("u", "u", h.handle)
    assert (g.type, g.mesh, g.spec) == (h.type, h.mesh, h.spec)
    same(g.get(), X)
    same(others.diff(g, axis=0).array, np.diff(X, axis=0))
    assert float((g + 1).sum()) == (X + 1).sum()


def test_an_array_gets_a_name_later(ours, others):
    ours.name(ours.sqrt(X, keep=True).array, "roots")
    same(others.open("roots").get(), np.sqrt(X))
    pending = ours.put(X) * 2
    ours.name(pending, "doubles")
    same(others.open("doubles").get(), X * 2)
    ours.name(pending.handle, "twice")
    same(others.open("twice").get(), X * 2)
    with pytest.raises(sc.ArrayLostError):
        others.open("doubles")


def test_an_array_with_a_name_stays_without_its_client(leasing_server, others):
    with sc.connect(leasing_server.address) as gone:
        gone.put(X, name="u")
        other = gone.put(X)
        handle = other.handle
    wait_for(lambda: others.usage().leases == 0)
    assert [array.name for array in others.list()] == ["u"]
    same(others.open("u").get(), X)
    with pytest.raises(sc.ArrayLostError):
        others.get(handle)
    others.open("u").delete()
    assert others.list() == []


def test_an_array_that_is_written_from_another_does_not_take_it_along(ours, others):
    h, k = ours.put(X, name="u"), ours.put(X + 1)
    h[...] = k
    others.open("u")[...] = 0
    same(k.get(), X + 1)
    same(h.get(), X * 0)


def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(ours, others):
    h = ours.put(X, name="u")
    with pytest.raises(sc.InvalidRequestError, match=r"'u' stands for another array; .*replace=True") as error:
        others.put(X + 1, name="u")
    assert (error.value.reason, error.value.metadata["name"]) == ("NAME_TAKEN", "u")
    same(h.get(), X)
    others.put(np.ones(3), name="u", replace=True)
    assert others.open("u").shape == (3,)
    with pytest.raises(sc.ArrayLostError, match=r"whose name 'u' stands for float64\[3\] now"):
        h.get()
    del error


def test_a_read_of_an_array_with_a_name_is_one_round_trip(ours, others, monkeypatch):
    h, g, rpcs = ours.put(X, **PLACED, name="u"), others.open("u"), []
    send = transport_of(ours)._send

    def counted(*args, **options):
        rpcs.append(args)
        return send(*args, **options)

    monkeypatch.setattr(transport_of(ours), "_send", counted)
    same(h.get(), X)
    assert len(rpcs) == 1
    g *= 2
    same(h.get(), 2 * X)
    assert len(rpcs) == 2
    same(h[1:].get(), 2 * X[1:])
    h += 1
    same(h.get(), 2 * X + 1)
    others.put(X.astype(np.float32), name="u", replace=True)
    with pytest.raises(sc.ArrayLostError, match=r"whose name 'u' stands for float32\[8,4\] now"):
        h.get()


def test_an_array_is_copied_by_its_handle_or_its_name(ours):
    h = ours.put(X, name="u")
    transport_of(ours).get_array(
        array_service_pb2.GetArrayRequest(name="u"), lambda messages, _: [*messages], Deadline(60)
    )
    both = array_service_pb2.GetArrayRequest(name="u", handle=bytes.fromhex(h.handle))
    with pytest.raises(sc.InvalidRequestError, match="a handle and the name 'u'; send one of them"):
        transport_of(ours).get_array(both, lambda messages, _: [*messages], Deadline(60))


def test_views_have_no_names(ours):
    h = ours.put(X)
    part = h[2:4]
    with pytest.raises(sc.InvalidOperandError, match="name a copy of it"):
        ours.name(part, "part")
    ours.name(part.copy(), "part")
    same(ours.open("part").get(), X[2:4])


def test_a_list_shows_names_owners_ages_and_times(ours, others):
    h, plain = ours.put(X, **PLACED, name="u"), others.put(X)
    listed = others.list()
    entry, other = listed.entries
    assert (entry.name, entry.type, entry.spec, entry.device_bytes) == ("u", h.type, P("x", None), X.nbytes)
    assert entry.owner
    assert entry.age_s >= other.age_s >= 0
    assert entry.expires_in_s is None
    assert 0 < other.expires_in_s <= 2
    assert listed[1] is plain
    header, row, _ = str(listed).splitlines()
    assert header.split() == ["name", "owner", "shared", "with", "type", "spec", "bytes", "age", "ends", "in"]
    assert row.startswith("u ")
    assert "float64[8,4]" in listed._repr_html_()
    assert [array.name for array in ours.list(of_all_clients=True)] == ["u", None]


def test_an_array_that_is_deleted_frees_its_name(ours, others):
    h, g = ours.put(X, name="u"), others.open("u")
    g.delete()
    assert (g.lost, g.name) == (True, None)
    with pytest.raises(sc.ArrayLostError, match="no array has the name 'u'"):
        h.get()
    h.delete()
    others.put(X, name="u")


def test_a_write_is_seen_in_every_client(ours, others):
    h = ours.put(X, **PLACED, name="u")
    g, part = others.open("u"), others.open("u")[2:4]
    expected = X.copy()
    h[1:3] = 7
    expected[1:3] = 7
    for array in (h, g, others.open("u")):
        same(array.get(), expected)
    g += 1
    expected += 1
    same(h.get(), expected)
    part[:, 0] = -1
    expected[2:4, 0] = -1
    same(h.get(), expected)
    same(part.get(), expected[2:4])
    np.add(h, 1, out=h)
    expected += 1
    same(part.get(), expected[2:4])
    assert float(g.sum()) == expected.sum()
    assert h.spec == g.spec == P("x", None)
    assert [array.name for array in others.list() if array.name] == ["u"]


def test_an_array_that_cannot_be_computed_replaces_none(ours, others):
    ours.put(X, name="u")
    failing = np.power(ours.put(np.array([2, 3])), ours.put(np.array([-1, 2])))
    with pytest.raises(sc.InvalidOperandError, match="negative"):
        ours.name(failing.handle, "u", replace=True)
    same(others.open("u").get(), X)


def test_a_product_of_a_transposed_array_reads_what_another_client_has_written(ours, others):
    h, v = ours.put(np.ones((2, 3)), name="m"), np.array([1.0, 2.0])
    same((h.T @ v).get(), [3.0, 3.0, 3.0])
    others.open("m")[...] = 4.0
    same((h.T @ v).get(), [12.0, 12.0, 12.0])


def test_a_client_whose_call_stream_the_server_refuses_writes_too(leasing_server, ours):
    h = ours.put(X, **PLACED, name="u")
    with contextlib.ExitStack() as stack:
        for _ in range(3):  # one more than get a call stream beside that of `ours`
            g = stack.enter_context(sc.connect(leasing_server.address)).open("u")
            g += 1
    same(h.get(), X + 3)


def test_traced_functions_read_and_write_arrays_with_names(ours, others):
    h, g = ours.put(X, name="u"), others.open("u")
    total = ours.jit(lambda x: x.sum())
    captured = ours.jit(lambda y: (h * y).sum())

    def clear(x):
        x[0] = 0

    for value in (5.0, 6.0):
        g[1] = value
        assert float(total(h)) == float(captured(1.0)) == g.get().sum()
    ours.jit(clear)(h)
    assert not g[0].get().any()


@pytest.mark.parametrize("is_called_before", [True, False])
def test_a_write_that_would_undo_anothers_is_refused(ours, others, is_called_before):
    h, g = ours.put(X, name="u"), others.open("u")
    with h._writing():
        new = h + 1
        if is_called_before:
            new.get()
        g[0] = 5
        with pytest.raises(sc.InvalidRequestError, match="another client has written to the array named 'u'") as error:
            h._assign(new)
    assert error.value.reason == "NAME_TAKEN"
    h += 1
    assert h.get()[0].tolist() == [6.0] * 4
