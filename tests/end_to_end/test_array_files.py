"""Arrays in files of the server: what is saved is loaded, by this package and by NumPy, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import os
import resource
import stat
from pathlib import Path

import numpy as np
import pytest
from end_to_end.filing import read, refused, same
from end_to_end.messages import token_of
from end_to_end.processes import stopped, wait_for
from rows import rows

import shardcall as sc
from shardcall import P, aio
from shardcall_core.types.element_types import DTYPES
from shardcall_core.wire import token_file

X = np.arange(35.0).reshape(7, 5)
LINE, GRID = sc.Mesh(x=8), sc.Mesh(x=4, y=2)


@rows(
    ("mesh", "spec"),
    [(LINE, P("x", None)), (LINE, P(None, "x")), (GRID, P(("y", "x"), None)), (GRID, P(None, None))],
)
def test_numpy_reads_what_was_saved_and_every_sharding_loads_it(mesh, spec, filing):
    saved = filing.client.save(filing.client.put(X, mesh=mesh, spec=spec), "runs/a.npy")
    assert (saved.name, saved.nbytes, saved.type) == ("runs/a.npy", 128 + X.nbytes, sc.Array((7, 5), "float64"))
    assert filing.files() in (["runs/a.npy"], ["b.npy", "runs/a.npy"])
    assert stat.S_IMODE((filing.folder / "runs/a.npy").stat().st_mode) == 0o600
    same(np.load(filing.folder / "runs/a.npy"), X)
    np.save(filing.folder / "b.npy", X * 2)
    loaded = filing.client.load("b.npy", mesh=mesh, spec=spec)
    assert (loaded.mesh.axes, loaded.spec) == (mesh.axes, spec)
    same(loaded.get(), X * 2)
    assert float(loaded.sum()) == X.sum() * 2  # padding is zero


@rows("shape", [(), (1,), (0,), (3, 0, 2), (2, 3, 4, 5), (17,)])
def test_every_shape_is_loaded_as_it_was_saved(shape, filing, suffix):
    x = np.random.default_rng(1).standard_normal(shape)
    filing.client.save(filing.client.put(x), f"a{suffix}")
    same(read(filing.folder / f"a{suffix}"), x)
    same(filing.client.load(f"a{suffix}").get(), x)


def test_every_element_type_is_loaded_as_it_was_saved(filing, suffix):
    for dtype in DTYPES.values():
        x = np.arange(12).astype(np.int8).astype(dtype).reshape(3, 4)
        h = filing.client.put(x)
        if (dtype.name, suffix) == ("uint4", ".zarr"):
            with pytest.raises(sc.ShardcallError, match="uint4, which Zarr files do not have") as caught:
                filing.client.save(h, "a.zarr")
            assert caught.value.reason == "UNSUPPORTED_ELEMENT_TYPE"
            continue
        filing.client.save(h, f"a{suffix}")
        same(filing.client.load(f"a{suffix}").get(), x)
        assert filing.client.files()[0].type == sc.Array((3, 4), dtype.name)
        if dtype.isbuiltin == 1:
            same(read(filing.folder / f"a{suffix}"), x)
        elif suffix == ".npy":  # bits, under the name of the type
            same(np.load(filing.folder / "a.npy")[dtype.name].view(dtype), x)


@rows("version", [(1, 0), (2, 0), (3, 0)])
@rows("x", [X, np.asfortranarray(X), X.astype(">f8"), np.asfortranarray(X.astype(">c16") * 1j), X.astype(">i2")])
def test_files_of_numpy_are_loaded_in_every_layout_and_version(version, x, filing):
    with (filing.folder / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, x, version=version)
    loaded = filing.client.load("a.npy", mesh=GRID, spec=P("x", "y"))
    same(loaded.get(), x.astype(x.dtype.newbyteorder("=")))


def test_views_pending_arrays_named_ones_and_handles_are_saved(filing, suffix):
    client, name = filing.client, f"a{suffix}"
    h, named = client.put(X, mesh=LINE, spec=P("x")), client.put(X, name="filed")
    named += 3
    for array, expected in ((h[2:, 1], X[2:, 1]), (h * 2 + 1, X * 2 + 1), (h.handle, X), (named, X + 3)):
        client.save(array, name)
        same(read(filing.folder / name), expected)
        assert os.listdir(filing.folder) == [name]
    named.delete()
    for lost in (named, "00" * 16):
        assert refused(lambda lost=lost: client.save(lost, f"b{suffix}")) == "ARRAY_LOST"
    assert os.listdir(filing.folder) == [name]
    (filing.folder / f"b{suffix}").write_bytes(b"a file")
    client.save(h, f"b{suffix}")
    same(client.load(f"b{suffix}").get(), X)


def test_files_are_listed_by_name_and_removed(filing, suffix):
    client, h = filing.client, filing.client.put(X)
    names = [f"a{suffix}", "b.npy", f"runs/1/a{suffix}"]
    for name in names[::-1]:
        client.save(h, name)
    table = client.files()
    assert [file.name for file in table] == names
    assert table[1].modified.timestamp() == pytest.approx((filing.folder / "b.npy").stat().st_mtime)
    assert f"runs/1/a{suffix}  float64[7,5]  " in str(table)
    assert [file.name for file in client.files("runs/")] == names[2:]
    assert client.remove_file(names[2])
    assert not client.remove_file(names[2])
    assert sorted(os.listdir(filing.folder)) == names[:2]
    assert refused(lambda: client.load(names[2])) == "FILE_NOT_FOUND"
    assert client.save(h, Path("runs/p.npy")).name == "runs/p.npy"
    same(client.load(Path("runs/p.npy")).get(), X)
    assert [file.name for file in client.files(Path("runs"))] == ["runs/p.npy"]
    assert client.remove_file(Path("runs/p.npy"))


def test_the_asynchronous_client_has_the_same(filing):
    async def use() -> np.ndarray:
        async with await aio.connect(filing.running.address) as client:
            await client.save(await client.put(X), "a.npy")
            assert [file.name for file in await client.files()] == ["a.npy"]
            value = await (await client.load("a.npy")).get()
            assert await client.remove_file("a.npy")
            return value

    same(asyncio.run(use()), X)


@rows(
    "name",
    [
        *("", "a", "a.npz", ".npy", "../a.npy", "a/../b.npy", "./a.npy", "/a.npy", "a//b.npy", "a/.b/c.npy", "ü.npy"),
        *("a\0.npy", "a b.npy", "a.npy/", "a.npy/b.npy", "x" * 61 + ".npy", "a/" * 8 + "b.npy", "a\\b.npy", "a.npy\n"),
        *(".zarr", "a.zarr/b.npy", "a.npy/b.zarr", "a.zarr/", "../a.zarr", "a.zarr/../b.npy", "a.zarr//b", "b/u"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(name, filing):
    client = filing.client
    for call in (lambda: client.save(client.put(X), name), lambda: client.load(name), lambda: client.remove_file(name)):
        assert refused(call) == "INVALID_PARAMETER"
    assert filing.files() == []


def test_links_in_the_folder_are_not_followed(filing, tmp_path, suffix):
    client, name = filing.client, f"a{suffix}"
    outside = tmp_path / name
    client.save(client.put(X), name)
    (filing.folder / name).rename(outside)
    (filing.folder / "link").symlink_to(tmp_path)
    (filing.folder / name).symlink_to(outside)
    os.mkfifo(filing.folder / "pipe.npy")
    for there in (f"link/{name}", name, "pipe.npy"):
        assert refused(lambda there=there: client.load(there)) == "FILE_NOT_FOUND"
        assert not client.remove_file(there)
    assert client.files() == []
    assert refused(lambda: client.save(client.put(X), "link/b.npy")) == "INVALID_PARAMETER"
    client.save(client.put(X * 2), name)  # replaces the link
    assert not (filing.folder / name).is_symlink()
    same(read(outside), X)
    same(read(filing.folder / name), X * 2)
    assert os.listdir(tmp_path) == [name]


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


def test_a_durable_array_that_is_not_written_leaves_its_name_as_it_was(filing):
    with sc.connect(filing.running.address, token=token_of("owner")) as owner:
        with pytest.raises(sc.AccessDeniedError, match="files"):
            owner.put(X, name="dd", durable=True)
        with pytest.raises(sc.ArrayLostError):
            owner.open("dd")
        earlier = owner.put(X, name="dd")
        with pytest.raises(sc.AccessDeniedError, match="files"):
            owner.put(X * 2, name="dd", replace=True, durable=True)
        same(owner.open("dd").get(), X)
        same(earlier.get(), X)
        assert len(owner.list(of_all_clients=True)) == 1
        earlier.delete()


def test_a_timeout_names_the_work_that_it_ended(filing):
    h = filing.client.put(np.zeros((32 << 20) // 8))
    for _ in range(20):
        with pytest.raises(sc.DeadlineExceededError) as caught:
            filing.client.save(h, "a.npy", timeout=0.003)
        assert "the kernel" not in str(caught.value)


def test_a_full_disk_leaves_the_file_before(filing, suffix):
    """A limit of the worker's files stands for the disk, whose end a write reaches in the same way."""
    client, name = filing.client, f"a{suffix}"
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


def test_a_save_whose_caller_leaves_changes_nothing(filing, suffix):
    client, name = filing.client, f"a{suffix}"
    client.save(client.put(X), name)
    h = client.put(X * 2)
    with stopped(filing.running):
        with pytest.raises(sc.DeadlineExceededError):
            client.save(h, name, timeout=0.2)
        wait_for(lambda: os.listdir(filing.folder) == [name])
    same(client.load(name).get(), X)


def npy(x: np.ndarray, text: str = "") -> bytes:
    """Returns an npy file, with another text of the header."""
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + x.tobytes()


TEXT = "{'descr': '<f8', 'fortran_order': False, 'shape': (7, 5), }"
DAMAGED = [
    *(npy(X, TEXT)[:size] for size in (0, 5, 6, 7, 8, 9, 10, 60, 127, 128, 129, 300, 407)),
    npy(X, TEXT) + b"\0",
    b"PK\3\4" + bytes(200),
    npy(X, TEXT).replace(b"\1\0", b"\4\0", 1),
    npy(X, TEXT).replace(b"\1\0", b"\1\1", 1),
    b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(1000),
    npy(X, TEXT.replace("False", "1")),
    *(npy(X, TEXT.replace("(7, 5)", shape)) for shape in ("(7, -5)", "(7, 5.0)", "(__import__('os').abort(),)")),
    npy(X, "'" * 100),
    npy(np.full(35, 2, np.int8), TEXT.replace("<f8", "|b1")),
    npy(np.full(35, 16, np.int8), TEXT.replace("'<f8'", "[('int4', '|u1')]")),
]
OF_NO_TYPE = ["'|O'", "'<U2'", "'<V8'", "'<M8[s]'", "[('a', '<f8')]", "[('int4', '<u8')]"]


@rows(
    ("content", "reason"),
    [
        *((content, "FILE_DAMAGED") for content in DAMAGED),
        *((npy(X, TEXT.replace("(7, 5)", shape)), "INVALID_SHAPE") for shape in (f"({'9' * 18}, 5)", f"({'1,' * 33})")),
        *((npy(X, TEXT.replace("'<f8'", descr)), "UNSUPPORTED_ELEMENT_TYPE") for descr in OF_NO_TYPE),
    ],
)
def test_damaged_files_and_objects_are_refused(content, reason, filing):
    pids = filing.running.worker_pids()
    (filing.folder / "a.npy").write_bytes(content)
    with pytest.raises(sc.ShardcallError, match=r"^the file 'a\.npy'") as caught:
        filing.client.load("a.npy")
    assert caught.value.reason == reason
    (file,) = filing.client.files()
    assert (file.name, file.refusal) == ("a.npy", reason if file.type is None else "")
    shown = "damaged" if reason == "FILE_DAMAGED" else "of a type that does not load"
    assert file.type is not None or shown in str(filing.client.files())
    assert filing.running.worker_pids() == pids


def test_a_pickle_is_not_loaded_and_may_be_replaced(filing):
    np.save(filing.folder / "a.npy", np.array([{}], object), allow_pickle=True)
    assert refused(lambda: filing.client.load("a.npy")) == "UNSUPPORTED_ELEMENT_TYPE"
    filing.client.save(filing.client.put(X), "a.npy")
    same(filing.client.load("a.npy").get(), X)
