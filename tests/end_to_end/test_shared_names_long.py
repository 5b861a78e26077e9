"""The tests of `test_shared_names.py` that take long."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from end_to_end.test_shared_names import SHARED, US, X, same
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

PLACED = {"mesh": sc.Mesh(x=8), "spec": P("x", None)}


_WRITER = Path(__file__).parent / "named_writer.py"


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


def test_a_guest_sees_what_the_owner_writes(ours, guest):
    h = ours.put(X, **PLACED, name="u")
    ours.share("u", with_="guest")
    g = guest.open(SHARED)
    part = g[2:4]
    h[2:4] = 7
    expected = X.copy()
    expected[2:4] = 7
    same(g.get(), expected)
    same(part.get(), expected[2:4])
    h += 1
    assert float(g.sum()) == (expected + 1).sum()


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


def test_an_owner_shares_and_deletes_while_a_guest_reads_and_writes(naming, ours):
    """Every use succeeds with a value that somebody wrote, or is refused for a reason that is documented."""
    h = ours.put(np.zeros((8, 4)), name="u")
    ending, failures = threading.Event(), []

    def use() -> None:
        with sc.connect(naming.address, token=token_of("guest")) as guest:
            while not ending.is_set():
                try:
                    g = guest.open(SHARED)
                    values = g.get()
                    assert (values == values[0, 0]).all(), values
                    g += 1
                except (sc.ArrayLostError, sc.AccessDeniedError):
                    pass
                except sc.InvalidRequestError as error:
                    if error.reason != "NAME_TAKEN":
                        failures.append(error)
                except BaseException as error:  # noqa: BLE001  # the test reports it
                    failures.append(error)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(30):
        ours.share("u", with_="guest", write=i % 3 != 0)
        with suppress(sc.InvalidRequestError, sc.ArrayLostError):
            h += 1
        ours.unshare("u", with_="guest" if i % 2 else None)
        if i % 10 == 9:
            h.delete()
            h = ours.put(np.zeros((8, 4)), name="u")
    ending.set()
    for thread in threads:
        thread.join()
    assert not failures
    values = h.get()
    assert (values == values[0, 0]).all()
    h.delete()
    wait_for(lambda: (ours.usage().arrays, ours.usage().leases) == (0, 0))


def test_a_guest_that_is_killed_while_it_writes_leaves_one_of_the_values(naming, ours):
    """Two processes of two principals write; one is killed, the other goes on, and nothing of the one stays."""
    h = ours.put(np.zeros((64, 4)), name="u", mesh=sc.Mesh(x=8))
    ours.share("u", with_="guest", write=True)
    workers = naming.worker_pids()
    for _ in range(3):
        environment = {**os.environ, "SHARDCALL_TOKEN": token_of("guest")}
        command = [sys.executable, str(_WRITER), naming.address, SHARED]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "writing\n"
            for _ in range(5):
                with suppress(sc.InvalidRequestError, sc.ArrayLostError):  # the other was faster
                    h[...] = -1
            writer.send_signal(signal.SIGKILL)
        values = h.get()
        assert (values == values[0, 0]).all()
        assert values[0, 0] == -1 or values[0, 0] in range(1, 1 << 20)
        h += 1
        same(h.get(), values + 1)
    wait_for(lambda: (ours.usage().arrays, ours.usage().leases) == (1, 0))
    same(ours.open("u").get(), values + 1)
    h.delete()
    assert ours.usage().arrays == 0
    assert naming.worker_pids() == workers
