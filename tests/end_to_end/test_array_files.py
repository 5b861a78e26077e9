"""Arrays in files of the server: what is saved is loaded, by this package and by NumPy, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from end_to_end.filing import Filing, filing_server, refused, same, without_files
from end_to_end.messages import token_of
from end_to_end.processes import alive, wait_for
from rows import rows

import shardcall as sc
from shardcall import P, aio
from shardcall_core.types.element_types import DTYPES
from shardcall_core.wire import token_file
from shardcall_server.frontend.files.array_folder import ArrayFolder

X = np.arange(35.0).reshape(7, 5)
LINE, GRID = sc.Mesh(x=8), sc.Mesh(x=4, y=2)


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Filing]:
    with filing_server(tmp_path_factory.mktemp("arrays")) as served:
        yield served


@pytest.fixture
def filing(shared) -> Iterator[Filing]:
    with without_files(shared) as emptied:
        yield emptied


@rows(
    ("mesh", "spec"),
    [
        (LINE, P("x", None)),
        (LINE, P(None, "x")),
        (GRID, P("x", "y")),
        (GRID, P(("y", "x"), None)),
        (GRID, P(None, None)),
        (sc.Mesh(x=1), P(None, None)),
    ],
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
    same(filing.client.load("runs/a.npy").get(), X)


def test_every_element_type_is_loaded_as_it_was_saved(filing):
    for dtype in DTYPES.values():
        x = np.arange(12).astype(np.int8).astype(dtype).reshape(3, 4)
        filing.client.save(filing.client.put(x), "a.npy")
        same(filing.client.load("a.npy").get(), x)
        read = np.load(filing.folder / "a.npy")
        same(read if dtype.isbuiltin == 1 else read[dtype.name].view(dtype), x)
        assert filing.client.files()[0].type == sc.Array((3, 4), dtype.name)


@rows("shape", [(), (1,), (0,), (3, 0, 2), (2, 3, 4, 5), (1, 1)])
def test_every_shape_is_loaded_as_it_was_saved(shape, filing):
    x = np.random.default_rng(1).standard_normal(shape)
    filing.client.save(filing.client.put(x), "a.npy")
    same(np.load(filing.folder / "a.npy"), x)
    same(filing.client.load("a.npy").get(), x)


@rows("version", [(1, 0), (2, 0), (3, 0)])
@rows("x", [X, np.asfortranarray(X), X.astype(">f8"), np.asfortranarray(X.astype(">c16") * 1j), X.astype(">i2")])
def test_files_of_numpy_are_loaded_in_every_layout_and_version(version, x, filing):
    with (filing.folder / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, x, version=version)
    loaded = filing.client.load("a.npy", mesh=GRID, spec=P("x", "y"))
    same(loaded.get(), x.astype(x.dtype.newbyteorder("=")))


def test_views_pending_arrays_named_ones_and_handles_are_saved(filing):
    client = filing.client
    h = client.put(X)
    client.save(h[2:, 1], "a.npy")
    same(np.load(filing.folder / "a.npy"), X[2:, 1])
    client.save(h * 2 + 1, "a.npy")
    same(np.load(filing.folder / "a.npy"), X * 2 + 1)
    client.save(h.handle, "a.npy")
    same(np.load(filing.folder / "a.npy"), X)
    named = client.put(X, name="filed")
    named += 3
    client.save(named, "a.npy")
    same(np.load(filing.folder / "a.npy"), X + 3)
    named.delete()
    assert refused(lambda: client.save(named, "a.npy")) == "ARRAY_LOST"
    assert refused(lambda: client.save("00" * 16, "b.npy")) == "ARRAY_LOST"
    assert filing.files() == ["a.npy"]


def test_files_are_listed_by_name_and_removed(filing):
    client, h = filing.client, filing.client.put(X)
    for name in ("b.npy", "runs/1/a.npy", "a.npy"):
        client.save(h, name)
    table = client.files()
    assert [file.name for file in table] == ["a.npy", "b.npy", "runs/1/a.npy"]
    assert table[0].modified.timestamp() == pytest.approx((filing.folder / "a.npy").stat().st_mtime)
    assert "runs/1/a.npy  float64[7,5]  408 bytes" in str(table)
    assert [file.name for file in client.files("runs/")] == ["runs/1/a.npy"]
    assert client.remove_file("runs/1/a.npy")
    assert not client.remove_file("runs/1/a.npy")
    assert not (filing.folder / "runs").exists()
    assert [file.name for file in client.files()] == ["a.npy", "b.npy"]
    assert refused(lambda: client.load("runs/1/a.npy")) == "FILE_NOT_FOUND"


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
    ],
)
def test_names_that_lead_elsewhere_are_refused(name, filing):
    client = filing.client
    for call in (lambda: client.save(client.put(X), name), lambda: client.load(name), lambda: client.remove_file(name)):
        assert refused(call) == "INVALID_PARAMETER"
    assert filing.files() == []


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


def test_a_durable_array_that_is_not_written_leaves_its_name_as_it_was(filing):
    with sc.connect(filing.running.address, token=token_of("owner")) as owner:
        before = len(owner.list(of_all_clients=True))
        with pytest.raises(sc.AccessDeniedError, match="files"):
            owner.put(X, name="dd", durable=True)
        assert len(owner.list(of_all_clients=True)) == before
        with pytest.raises(sc.ArrayLostError):
            owner.open("dd")
        earlier = owner.put(X, name="dd")
        with pytest.raises(sc.AccessDeniedError, match="files"):
            owner.put(X * 2, name="dd", replace=True, durable=True)
        same(owner.open("dd").get(), X)
        same(earlier.get(), X)
        assert len(owner.list(of_all_clients=True)) == before + 1
        earlier.delete()


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


def npy(x: np.ndarray, text: str = "") -> bytes:
    """Returns an npy file, with another text of the header."""
    header = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + x.tobytes()


TEXT = "{'descr': '<f8', 'fortran_order': False, 'shape': (7, 5), }"


@rows(
    ("content", "reason"),
    [
        *((npy(X, TEXT)[:size], "FILE_DAMAGED") for size in (0, 5, 6, 7, 8, 9, 10, 60, 127, 128, 129, 300, 407)),
        (npy(X, TEXT) + b"\0", "FILE_DAMAGED"),
        (b"PK\3\4" + bytes(200), "FILE_DAMAGED"),
        (npy(X, TEXT).replace(b"\1\0", b"\4\0", 1), "FILE_DAMAGED"),
        (npy(X, TEXT).replace(b"\1\0", b"\1\1", 1), "FILE_DAMAGED"),
        (b"\x93NUMPY\2\0\xff\xff\xff\xff" + bytes(1000), "FILE_DAMAGED"),
        (npy(X, TEXT.replace("(7, 5)", "(7, -5)")), "FILE_DAMAGED"),
        (npy(X, TEXT.replace("(7, 5)", "(7, 5.0)")), "FILE_DAMAGED"),
        (npy(X, TEXT.replace("False", "1")), "FILE_DAMAGED"),
        (npy(X, TEXT.replace("(7, 5)", "(__import__('os').abort(),)")), "FILE_DAMAGED"),
        (npy(X, "'" * 100), "FILE_DAMAGED"),
        (npy(X, TEXT.replace("(7, 5)", f"({'9' * 18}, 5)")), "INVALID_SHAPE"),
        (npy(X, TEXT.replace("(7, 5)", f"({'1,' * 33})")), "INVALID_SHAPE"),
        (npy(X, TEXT.replace("<f8", "|O")), "UNSUPPORTED_ELEMENT_TYPE"),
        (npy(X, TEXT.replace("<f8", "<U2")), "UNSUPPORTED_ELEMENT_TYPE"),
        (npy(X, TEXT.replace("<f8", "<V8")), "UNSUPPORTED_ELEMENT_TYPE"),
        (npy(X, TEXT.replace("<f8", "<M8[s]")), "UNSUPPORTED_ELEMENT_TYPE"),
        (npy(X, TEXT.replace("'<f8'", "[('a', '<f8')]")), "UNSUPPORTED_ELEMENT_TYPE"),
        (npy(X, TEXT.replace("'<f8'", "[('int4', '<u8')]")), "UNSUPPORTED_ELEMENT_TYPE"),
        (npy(np.full(35, 2, np.int8), TEXT.replace("<f8", "|b1")), "FILE_DAMAGED"),
        (npy(np.full(35, 16, np.int8), TEXT.replace("'<f8'", "[('int4', '|u1')]")), "FILE_DAMAGED"),
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
    filing.client.save(filing.client.put(X), "a.npy")
    same(filing.client.load("a.npy").get(), X)
    assert filing.running.worker_pids() == pids


def test_a_timeout_names_the_work_that_it_ended(filing):
    h = filing.client.put(np.zeros((32 << 20) // 8))
    for _ in range(20):
        with pytest.raises(sc.DeadlineExceededError) as caught:
            filing.client.save(h, "a.npy", timeout=0.003)
        assert "the kernel" not in str(caught.value)


def test_a_pickle_is_not_loaded(filing):
    np.save(filing.folder / "a.npy", np.array([{}], object), allow_pickle=True)
    assert refused(lambda: filing.client.load("a.npy")) == "UNSUPPORTED_ELEMENT_TYPE"


def test_a_full_disk_leaves_the_file_before(filing):
    """A limit of the worker's files stands for the disk, whose end a write reaches in the same way."""
    client = filing.client
    client.save(client.put(X), "a.npy")
    resource = pytest.importorskip("resource")
    (worker,) = filing.running.worker_pids()
    before = resource.prlimit(worker, resource.RLIMIT_FSIZE)
    resource.prlimit(worker, resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(sc.ResourceExhaustedError, match="takes no more") as caught:
            client.save(client.put(np.zeros(10_000)), "a.npy")
    finally:
        resource.prlimit(worker, resource.RLIMIT_FSIZE, before)
    assert caught.value.reason == "FILE_LIMIT"
    assert filing.files() == ["a.npy"]
    same(client.load("a.npy").get(), X)


def test_a_save_whose_caller_leaves_changes_nothing(filing):
    client = filing.client
    client.save(client.put(X), "a.npy")
    h = client.put(X * 2)
    (worker,) = filing.running.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        with pytest.raises(sc.DeadlineExceededError):
            client.save(h, "a.npy", timeout=0.2)
        wait_for(lambda: filing.files() == ["a.npy"])
    finally:
        os.kill(worker, signal.SIGCONT)
    same(client.load("a.npy").get(), X)


def test_a_server_killed_during_a_save_leaves_the_file_before(tmp_path, server_factory):
    folder = tmp_path / token_file.user_name()
    running = server_factory("--array-dir", str(tmp_path))
    (worker,) = running.worker_pids()
    with sc.connect(running.address) as client, ThreadPoolExecutor(1) as thread:
        client.save(client.put(X), "runs/a.npy")
        h = client.put(X * 2)
        os.kill(worker, signal.SIGSTOP)
        saving = thread.submit(client.save, h, "runs/a.npy", timeout=60)
        wait_for(lambda: len(os.listdir(folder / "runs")) == 2)
        running.process.kill()
        with pytest.raises(sc.ShardcallError):
            saving.result(120)
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not alive(worker))
    assert len(os.listdir(folder / "runs")) == 2
    ArrayFolder(str(tmp_path), 1 << 20, 10).close()  # as the next server does
    assert os.listdir(folder / "runs") == ["a.npy"]
    same(np.load(folder / "runs/a.npy"), X)


@rows("shape", [(2, 2_200_001), (2_200_001, 2), (2, 2, 1_100_001)])
def test_arrays_of_many_pieces_are_saved_and_loaded(shape, filing):
    """Rows longer than a piece, pieces of several rows and blocks with padding."""
    x = np.random.default_rng(1).integers(0, 100, shape, np.int8).astype(np.float32)
    filing.client.save(filing.client.put(x, mesh=GRID, spec=P("x", "y")), "a.npy")
    same(np.load(filing.folder / "a.npy"), x)
    same(filing.client.load("a.npy", mesh=GRID, spec=P(None, "x")).get(), x)
    np.save(filing.folder / "b.npy", np.asfortranarray(x))
    same(filing.client.load("b.npy", mesh=GRID, spec=P("y")).get(), x)


def test_bits_of_types_that_numpy_lacks_have_the_name_of_the_type(filing):
    x = np.arange(4).astype(ml_dtypes.bfloat16)
    filing.client.save(filing.client.put(x), "a.npy")
    read = np.load(filing.folder / "a.npy")
    assert read.dtype == np.dtype([("bfloat16", "<u2")])
    same(read["bfloat16"].view(ml_dtypes.bfloat16), x)
