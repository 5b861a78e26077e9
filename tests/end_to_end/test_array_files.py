"""Arrays in files of the server: what is saved is loaded, by this package and by NumPy, whatever happens meanwhile."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from end_to_end.filing import check_names_refused, read, refused, same
from end_to_end.messages import token_of
from end_to_end.processes import stopped, wait_for
from rows import rows

import shardcall as sc
from shardcall import P
from shardcall_core.wire import token_file

X = np.arange(35.0).reshape(7, 5)
LINE, GRID = sc.Mesh(x=8), sc.Mesh(x=4, y=2)
either = pytest.mark.parametrize("name", ["a.npy", "a.zarr"])


@rows("version", [(1, 0), (2, 0), (3, 0)])
@rows("x", [X, np.asfortranarray(X), X.astype(">f8"), np.asfortranarray(X.astype(">c16") * 1j), X.astype(">i2")])
def test_files_of_numpy_are_loaded_in_every_layout_and_version(version, x, filing):
    with (filing.folder / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, x, version=version)
    same(filing.client.load("a.npy", mesh=GRID, spec=P("x", "y")).get(), x.astype(x.dtype.newbyteorder("=")))


def test_names_that_lead_elsewhere_are_refused(filing):
    check_names_refused(
        filing,
        *("", "a", "a.npz", ".npy", "../a.npy", "a/../b.npy", "./a.npy", "/a.npy", "a//b.npy", "a/.b/c.npy", "ü.npy"),
        *("a\0.npy", "a b.npy", "a.npy/", "a.npy/b.npy", "x" * 61 + ".npy", "a/" * 8 + "b.npy", "a\\b.npy", "a.npy\n"),
        *(".zarr", "a.zarr/b.npy", "a.npy/b.zarr", "a.zarr/", "../a.zarr", "a.zarr/../b.npy", "a.zarr//b", "b/u"),
    )


@either
def test_every_shape_is_loaded_as_it_was_saved(name, filing):
    for shape in ((), (1,), (0,), (3, 0, 2), (2, 3, 4, 5), (1, 1), (17,)):
        x = np.random.default_rng(1).standard_normal(shape)
        filing.client.save(filing.client.put(x), name)
        same(read(filing.folder / name), x)
        same(filing.client.load(name).get(), x)


@either
def test_a_full_disk_leaves_the_file_before(name, filing):
    """A limit of the worker's files stands for the disk, whose end a write reaches in the same way."""
    client = filing.client
    client.save(client.put(X), name)
    (worker,) = filing.running.worker_pids()
    before = resource.prlimit(worker, resource.RLIMIT_FSIZE)
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(sc.ResourceExhaustedError, match="takes no more") as caught:
            client.save(client.put(np.zeros(10_000), mesh=sc.Mesh(x=1), spec=P(None)), name)
    finally:
        resource.prlimit(worker, resource.RLIMIT_FSIZE, before)
    assert caught.value.reason == "FILE_LIMIT"
    assert os.listdir(filing.folder) == [name]
    same(client.load(name).get(), X)


@either
def test_a_save_whose_caller_leaves_changes_nothing(name, filing):
    client = filing.client
    client.save(client.put(X), name)
    h = client.put(X * 2)
    with stopped(filing.running):
        with pytest.raises(sc.DeadlineExceededError):
            client.save(h, name, timeout=0.2)
        wait_for(lambda: os.listdir(filing.folder) == [name])
    same(client.load(name).get(), X)
    assert os.listdir(filing.folder) == [name]


def test_files_are_listed_by_name_and_removed(filing):
    client, h = filing.client, filing.client.put(X)
    for name in ("b.zarr", "runs/1/a.npy", "a.npy"):
        client.save(h, name)
    table = client.files()
    assert [file.name for file in table] == ["a.npy", "b.zarr", "runs/1/a.npy"]
    assert table[0].modified.timestamp() == pytest.approx((filing.folder / "a.npy").stat().st_mtime)
    assert "runs/1/a.npy  float64[7,5]  408 bytes" in str(table)
    assert [file.name for file in client.files("runs/")] == ["runs/1/a.npy"]
    assert client.remove_file("runs/1/a.npy")
    assert not client.remove_file("runs/1/a.npy")
    assert not (filing.folder / "runs").exists()
    assert client.remove_file("b.zarr")
    assert [file.name for file in client.files()] == os.listdir(filing.folder) == ["a.npy"]
    assert refused(lambda: client.load("runs/1/a.npy")) == "FILE_NOT_FOUND"


def test_links_in_the_folder_are_not_followed(filing, tmp_path):
    client, outside = filing.client, tmp_path / "outside"
    outside.mkdir()
    np.save(outside / "a.npy", X)
    (filing.folder / "link").symlink_to(outside)
    (filing.folder / "a.npy").symlink_to(outside / "a.npy")
    os.mkfifo(filing.folder / "pipe.npy")
    for name in ("link/a.npy", "a.npy", "pipe.npy"):
        assert refused(lambda name=name: client.load(name)) == "FILE_NOT_FOUND"
        assert not client.remove_file(name)
    assert client.files() == []
    assert refused(lambda: client.save(client.put(X), "link/b.npy")) == "INVALID_PARAMETER"
    client.save(client.put(X * 2), "a.npy")  # replaces the link
    same(np.load(outside / "a.npy"), X)
    same(np.load(filing.folder / "a.npy"), X * 2)
    assert os.listdir(outside) == ["a.npy"]


def test_principals_do_not_see_files_of_others(filing):
    filing.client.save(filing.client.put(X), "a.npy")
    with sc.connect(filing.running.address, token=token_of("guest")) as guest:
        assert guest.files() == []
        assert refused(lambda: guest.load("a.npy")) == "FILE_NOT_FOUND"
        assert refused(lambda: guest.load(f"../{token_file.user_name()}/a.npy")) == "INVALID_PARAMETER"
        guest.save(guest.put(X * 2), "a.npy")
        same(np.load(filing.folder.parent / "guest/a.npy"), X * 2)
        guest.remove_file("a.npy")
    same(np.load(filing.folder / "a.npy"), X)
    with sc.connect(filing.running.address, token=token_of("owner")) as owner:
        for call in (owner.files, lambda: owner.save(owner.put(X), "a.npy"), lambda: owner.load("a.npy")):
            assert refused(call) == "SCOPE_MISSING"


def test_a_durable_array_replaces_another(filing):
    client = filing.client
    earlier = client.put(X, name="replaced", durable=True)
    handle = earlier.handle
    h = client.put(X * 2, name="replaced", replace=True, durable=True)
    assert handle not in {array.handle for array in client.list(of_all_clients=True)}
    same(client.open("replaced").get(), X * 2)
    assert client.save_checkpoint("replaced").names == ("replaced",)
    h.delete()


def test_the_names_of_files_may_be_paths(filing):
    client = filing.client
    assert client.save(client.put(X), Path("runs/p.npy")).name == "runs/p.npy"
    same(client.load(Path("runs/p.npy")).get(), X)
    assert [file.name for file in client.files(Path("runs"))] == ["runs/p.npy"]
    assert client.remove_file(Path("runs/p.npy"))


def test_the_limits_of_a_principal_hold(filing):
    client, h = filing.client, filing.client.put(X)
    for i in range(6):
        client.save(h, f"runs/{i}.npy")
    with pytest.raises(sc.ResourceExhaustedError, match="has 6 files, and may have no more"):
        client.save(h, "other/a.npy")
    large = client.put(np.zeros((64 << 20) // 8))
    assert refused(lambda: client.save(large, "runs/0.npy")) == "FILE_LIMIT"
    client.save(h, "runs/0.npy")
    assert filing.files() == [f"runs/{i}.npy" for i in range(6)]
    client.remove_file("runs/0.npy")
    client.save(h, "other/a.npy")


def test_a_timeout_names_the_work_that_it_ended(filing):
    h = filing.client.put(np.zeros((32 << 20) // 8))
    for _ in range(20):
        with pytest.raises(sc.DeadlineExceededError) as caught:
            filing.client.save(h, "a.npy", timeout=0.003)
        assert "the kernel" not in str(caught.value)
