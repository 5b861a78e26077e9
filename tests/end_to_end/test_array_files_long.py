"""Large arrays in files of the server, files that are replaced while they are read, and servers killed meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from end_to_end.filing import read, same
from end_to_end.processes import alive, stop, wait_for
from end_to_end.test_array_files import GRID, LINE, X
from rows import rows

import shardcall as sc
from shardcall import P
from shardcall_core.wire import token_file
from shardcall_server.frontend.files.array_folder import ArrayFolder
from shardcall_server.frontend.files.zarr_metadata import WRITTEN_CHUNK_BYTES

pytestmark = pytest.mark.long


@rows("shape", [(2, 2_200_001), (2_200_001, 2), (2, 2, 1_100_001)])
def test_arrays_of_many_pieces_are_saved_and_loaded(shape, filing, suffix):
    """Rows longer than a piece, pieces of several rows and blocks with padding."""
    x = np.random.default_rng(1).integers(0, 100, shape, np.int8).astype(np.float32)
    client, path = filing.client, filing.folder / f"a{suffix}"
    client.save(client.put(x, mesh=GRID, spec=P("x", "y")), path.name)
    same(client.load(path.name, mesh=GRID, spec=P(None, "x")).get(), x)
    client.save(client.put(x, mesh=sc.Mesh(x=1), spec=P()), path.name)  # one block of 17.6 MB
    same(read(path), x)
    if suffix == ".npy":
        np.save(filing.folder / "b.npy", np.asfortranarray(x))
    else:
        zarr = pytest.importorskip("zarr")
        chunks = zarr.open_array(path, mode="r").chunks
        assert WRITTEN_CHUNK_BYTES / 2 < np.prod(chunks) * 4 <= WRITTEN_CHUNK_BYTES
        chunks = tuple(min(size, 300_000) for size in shape)
        zarr.create_array(filing.folder / "b.zarr", shape=shape, dtype=x.dtype, chunks=chunks)[...] = x
    same(client.load(f"b{suffix}", mesh=GRID, spec=P("y")).get(), x)
    for name in (path.name, f"b{suffix}"):
        client.remove_file(name)


def test_a_server_killed_during_a_save_leaves_the_file_before(tmp_path, server_factory, suffix):
    folder, name = tmp_path / token_file.user_name() / "runs", f"a{suffix}"
    running = server_factory("--array-dir", str(tmp_path), why="it is killed during a save")
    (worker,) = running.worker_pids()
    with sc.connect(running.address) as client, ThreadPoolExecutor(1) as thread:
        client.save(client.put(X), f"runs/{name}")
        h = client.put(X * 2)
        stop(worker)
        saving = thread.submit(client.save, h, f"runs/{name}", timeout=60)
        wait_for(lambda: len(os.listdir(folder)) == 2)
        running.process.kill()
        with pytest.raises(sc.ShardcallError):
            saving.result(120)
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: not alive(worker))
    assert len(os.listdir(folder)) == 2
    ArrayFolder(str(tmp_path), 1 << 20, 10).close()  # as the next server does
    assert os.listdir(folder) == [name]
    same(read(folder / name), X)


def test_an_array_that_is_replaced_while_it_is_loaded_is_the_one_or_the_other(filing, suffix):
    client, ended, name = filing.client, threading.Event(), f"a{suffix}"
    handles = [client.put(np.full((256, 64), float(i)), mesh=LINE, spec=P("x")) for i in (1, 2)]
    client.save(handles[0], name)

    def replace() -> None:
        while not ended.is_set():
            for h in handles:
                client.save(h, name)

    with ThreadPoolExecutor(1) as thread:
        replacing = thread.submit(replace)
        try:
            values = {tuple(np.unique(client.load(name).get())) for _ in range(40)}
        finally:
            ended.set()
        replacing.result()
    assert values <= {(1.0,), (2.0,)}
