"""The tests of `test_named_arrays.py` that take long."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_named_arrays import PLACED, X, same
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def naming() -> Iterator[ServerProcess]:
    """A server whose leases end after 2 s, of which one client may have 6 arrays."""
    with running_server("--lease-s", "2", "--max-resident-arrays", "8", why="its leases are short") as running:
        yield running


@pytest.fixture
def ours(naming) -> Iterator[sc.Client]:
    with sc.connect(naming.address) as client:
        yield client
        client.delete(*client.list(of_all_clients=True))


@pytest.fixture
def others(naming) -> Iterator[sc.Client]:
    """Another client of the same principal."""
    with sc.connect(naming.address) as client:
        yield client


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


def test_traced_functions_read_and_write_arrays_with_names(ours, others):
    h, g = ours.put(X, name="u"), others.open("u")
    total = ours.jit(lambda x: x.sum())
    captured = ours.jit(lambda y: (h * y).sum())

    def clear(x):
        x[0] = 0

    for value in (5.0, 6.0):
        g[1] = value
        expected = g.get().sum()
        assert float(total(h)) == float(captured(1.0)) == expected
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


def test_the_time_of_an_array_with_a_name_ends(ours):
    h = ours.put(X, name="brief", keep_for=0.5)
    ours.put(X, name="lasting")
    (entry,) = (entry for entry in ours.list().entries if entry.name == "brief")
    assert 0 < entry.expires_in_s <= 0.5
    wait_for(lambda: [array.name for array in ours.list()] == ["lasting"])
    with pytest.raises(sc.ArrayLostError, match=r"no array has the name 'brief'.*its time ended"):
        h.get()


def test_a_mesh_that_restarts_loses_names_with_a_clear_error(naming, ours):
    h = ours.put(X, name="u")
    (worker,) = naming.worker_pids()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: ours.usage().arrays == 0)
    for use in (h.get, lambda: ours.open("u"), lambda: h + 1):
        with pytest.raises(sc.ArrayLostError, match=r"no array has the name 'u'.*the mesh or the server restarted"):
            use()
    ours.put(X, name="u")
    same(h.get(), X)
