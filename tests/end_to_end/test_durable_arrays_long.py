"""Checkpoints that are written, damaged and restored under every circumstance."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from end_to_end.filing import same
from end_to_end.processes import repeated, wait_for
from end_to_end.test_durable_arrays import LINE, X, flip_bit, refused
from servers import running_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


def saved_or_refused(client: sc.Client, saved: list) -> bool:
    """Saves a checkpoint if the server does not refuse it; returns whether it did."""
    with suppress(sc.InvalidRequestError):
        saved.append(client.save_checkpoint())
    return bool(saved)


def test_a_deleted_or_ended_array_stays_away_and_a_renamed_one_has_its_name(servers):
    client = servers.start()
    for name in ("gone", "old", "stays", "renamed"):
        client.put(X, name=name, durable=True)
    client.name(client.open("renamed"), "deleted")
    client.open("deleted").delete()
    longer = client.put(X, name="longer", keep_for=2.0, durable=True)
    client.name(longer, "longer")
    client.save_checkpoint("longer")
    client.put(X, name="ends", keep_for=2.0, durable=True)
    client.open("gone").delete()
    assert not any(entry.name == "gone" for entry in client.list().entries)
    client.name(client.open("old"), "new")
    assert client.save_checkpoint("new").names == ("ends", "longer", "new", "stays")
    end = time.monotonic() + 2.0
    client = servers.restart()
    wait_for(lambda: time.monotonic() > end)
    assert sorted(entry.name for entry in client.list().entries) == ["longer", "new", "stays"]
    assert client.save_checkpoint().names == ("longer", "new", "stays")
    deleted = client.open("new")
    total = deleted.sum()  # is computed from a file that is read then
    client.delete(deleted, client.open("stays"), client.open("longer"))
    assert total.get() == X.sum()
    wait_for(lambda: not any(entry.name for entry in client.list().entries))  # after the call
    servers.restart()
    assert servers.client.list() == []
    assert len([name for name in servers.files() if name.endswith(".npy")]) == 0


def test_the_arrays_of_a_checkpoint_are_of_one_moment(servers):
    client = servers.start()
    u, v = (client.put(np.zeros(4096), name=name) for name in ("u", "v"))
    written = []

    def write() -> None:
        number = first[0].get() + 1
        first[...] = number
        second[...] = number
        written.append(number)

    with sc.connect(servers.running.address) as other:
        first, second = other.open("u"), other.open("v")
        with repeated(write):
            for _ in range(10):
                written.clear()
                wait_for(lambda: bool(written))
                client.save_checkpoint()
    client = servers.restart()
    u, v = (client.open(name).get() for name in ("u", "v"))
    assert np.ptp(u) == np.ptp(v) == 0
    assert u[0] > 0
    assert u[0] - v[0] in {0.0, 1.0}


def test_clients_at_once_save_their_arrays(servers):
    servers.start()

    def save(number: int) -> None:
        with sc.connect(servers.running.address) as client:
            for step in range(5):
                client.put(np.full(8, float(step)), name=f"u{number}", replace=True, durable=True)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, range(4)))
    client = servers.restart()
    assert sorted(entry.name for entry in client.list().entries) == ["u0", "u1", "u2", "u3"]
    for number in range(4):
        same(client.open(f"u{number}").get(), np.full(8, 4.0))


def test_another_server_restores_the_checkpoints_when_the_first_has_ended(servers):
    handle = servers.start().put(X, name="u", durable=True).handle
    with (
        running_server("--array-dir", str(servers.folder), why="it follows another") as second,
        sc.connect(second.address) as other,
    ):
        other.put(X + 1, name="mine")
        error = refused(other.save_checkpoint)
        assert (error.reason, "another server" in str(error)) == ("FILES_UNAVAILABLE", True)
        servers.end()
        saved = []
        wait_for(lambda: bool(saved) or saved_or_refused(other, saved))
        assert saved[0].names == ("mine", "u")
        same(other.open("u").get(), X)
        assert other.open("u").handle == handle


def test_what_does_not_fit_stays_in_the_checkpoint(servers):
    client = servers.start()
    client.put(X, mesh=LINE, spec=P("x", None), name="wide", durable=True)
    client.put(X, mesh=sc.Mesh(x=1), name="narrow", durable=True)
    client = servers.restart(devices=2)
    assert [entry.name for entry in client.list().entries] == ["narrow"]
    assert "could not be restored" in str(refused(lambda: client.open("wide")))
    assert client.save_checkpoint().names == ("narrow", "wide")
    client = servers.restart()
    same(client.open("wide").get(), X)


def test_a_checkpoint_has_limits_and_a_failed_one_leaves_the_last(servers):
    client = servers.start("--max-file-bytes", str(1 << 20))
    client.put(X, name="u", durable=True)
    big = client.put(np.zeros(1 << 17), name="big")
    error = refused(client.save_checkpoint)
    assert (error.reason, "--max-file-bytes" in str(error)) == ("FILE_LIMIT", True)
    assert refused(lambda: client.save(big, "a.npy")).reason == "FILE_LIMIT"
    assert refused(lambda: client.save_checkpoint("u", "none")).reason == "ARRAY_LOST"
    assert refused(lambda: client.save_checkpoint("a/b")).field == "name"
    assert refused(lambda: client.put(X, durable=True)).field == "durable"
    assert client.save_checkpoint("u").names == ("u",)
    wait_for(lambda: len(servers.files()) == 3)  # u and two checkpoints
    (servers.folder / ".checkpoints").chmod(0o500)
    try:
        if os.geteuid():  # the administrator of a machine may write anywhere
            assert refused(lambda: client.put(X, name="v", durable=True)).reason == "FILES_UNAVAILABLE"
    finally:
        (servers.folder / ".checkpoints").chmod(0o700)
    client = servers.restart()
    same(client.open("u").get(), X)


FLIPS_AT_ONCE, RESTARTS = 25, 8


def error_of(call: Callable[[], object]) -> sc.ShardcallError | None:
    try:
        call()
    except sc.ShardcallError as error:
        return error
    return None


def test_every_bit_that_flips_in_a_checkpoint_is_noticed_or_harmless(servers):
    client, draws = servers.start(), np.random.default_rng(0)
    sizes = [*draws.integers(1, 3000, 24).tolist(), 150_000]
    for _ in range(2):  # the older values are there, too, and are never to be read
        values = {f"u{number}": draws.standard_normal(size) for number, size in enumerate(sizes)}
        for name, x in values.items():
            client.put(x, name=name, replace=True)
        client.save_checkpoint()
    noticed = 0
    for _ in range(RESTARTS):
        servers.kill()
        paths = [servers.folder / ".checkpoints" / name for name in servers.files()]
        assert len(paths) == 2 * len(values) + 2
        before = {path: path.read_bytes() for path in draws.choice(paths, FLIPS_AT_ONCE, replace=False)}
        for path, data in before.items():
            flip_bit(path, draws.integers(len(data)))
        servers.end()
        client = servers.start()
        for name, x in values.items():
            array = client.open(name)
            if (error := error_of(array.get)) is None:
                same(array.get(), x)
            else:
                assert (error.reason, error.metadata["name"]) == ("FILE_DAMAGED", name)
                noticed += 1
        for path, data in before.items():
            path.write_bytes(data)
    assert noticed > FLIPS_AT_ONCE * RESTARTS / 4  # half of the files have the present values


def test_a_client_that_goes_on_to_the_next_server_learns_what_the_first_has_lost(servers):
    servers.start()
    with (
        running_server("--array-dir", str(servers.folder), why="it follows another") as second,
        sc.connect([servers.running.address, second.address]) as client,
    ):
        h = client.put(X, name="u", durable=True)
        h += 1
        servers.end()
        wait_for(lambda: "went back to the checkpoint" in str(refused(h.get)))
        same(client.open("u").get(), X)
        h += 2
        same(client.open("u").get(), X + 2)
