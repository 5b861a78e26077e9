"""Files of arrays of every sharding and type, damaged ones, and saves that are cut off."""

import os
import signal
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from end_to_end.filing import read, refused, same
from end_to_end.messages import token_of
from end_to_end.processes import stopped, wait_for
from end_to_end.test_array_files import GRID, LINE, X, either
from rows import rows
from servers import alive

import shardcall as sc
from shardcall import P
from shardcall_core.types.element_types import DTYPES
from shardcall_core.wire import token_file
from shardcall_server.frontend.files.array_folder import ArrayFolder

pytestmark = pytest.mark.long


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
        stored = np.load(filing.folder / "a.npy")
        if dtype.isbuiltin != 1:  # a type that NumPy lacks: bits that have its name
            assert stored.dtype == np.dtype([(dtype.name, f"<u{dtype.itemsize}")])
            stored = stored[dtype.name].view(dtype)
        same(stored, x)
        assert filing.client.files()[0].type == sc.Array((3, 4), dtype.name)


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


@either
def test_a_server_killed_during_a_save_leaves_the_file_before(name, tmp_path, server_factory):
    runs = tmp_path / token_file.user_name() / "runs"
    running = server_factory("--array-dir", str(tmp_path), why="it is killed")
    (worker,) = running.worker_pids()
    with sc.connect(running.address) as client, ThreadPoolExecutor(1) as thread:
        client.save(client.put(X), f"runs/{name}")
        h = client.put(X * 2)
        with suppress(ProcessLookupError), stopped(running):
            saving = thread.submit(client.save, h, f"runs/{name}", timeout=60)
            wait_for(lambda: len(os.listdir(runs)) == 2)
            running.process.kill()
            with pytest.raises(sc.ShardcallError):
                saving.result(120)
            os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not alive(worker))
    assert len(os.listdir(runs)) == 2
    ArrayFolder(str(tmp_path), 1 << 20, 10).close()  # as the next server does
    assert os.listdir(runs) == [name]
    same(read(runs / name), X)


@rows("shape", [(2, 2_200_001), (2_200_001, 2), (2, 2, 1_100_001)])
def test_arrays_of_many_pieces_are_saved_and_loaded(shape, filing):
    """Rows longer than a piece, pieces of several rows and blocks with padding."""
    x = np.random.default_rng(1).integers(0, 100, shape, np.int8).astype(np.float32)
    filing.client.save(filing.client.put(x, mesh=GRID, spec=P("x", "y")), "a.npy")
    same(np.load(filing.folder / "a.npy"), x)
    same(filing.client.load("a.npy", mesh=GRID, spec=P(None, "x")).get(), x)
    np.save(filing.folder / "b.npy", np.asfortranarray(x))
    same(filing.client.load("b.npy", mesh=GRID, spec=P("y")).get(), x)
