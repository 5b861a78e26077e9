"""Arrays with names that outlive the mesh and the server: what a checkpoint has is there again, and nothing else."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from end_to_end.filing import Restarting, same
from end_to_end.processes import wait_for
from servers import ServerProcess

import shardcall as sc
from shardcall import P

LINE, GRID = sc.Mesh(x=8), sc.Mesh(x=4, y=2)
X = np.arange(35.0).reshape(7, 5)


def kill_worker(running: ServerProcess, client: sc.Client) -> None:
    """Ends the mesh, and waits until that is noticed; names and lists wait for the next mesh."""
    restarts = client.usage().mesh.restarts
    for pid in running.worker_pids():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: client.usage().mesh.restarts > restarts)


def refused(call: Callable[[], object]) -> sc.ShardcallError:
    with pytest.raises(sc.ShardcallError) as caught:
        call()
    return caught.value


def check_ages(client: sc.Client, put_at: float) -> None:
    """Checks that the arrays are as old as what was put before a moment, by a clock that may be set a little."""
    age_s = time.time() - put_at
    assert all(entry.age_s > 0.9 * age_s for entry in client.list().entries)


def test_a_checkpoint_outlives_the_worker_and_the_server(servers):
    client = servers.start()
    values = {
        "rows": (X, LINE, P("x", None)),
        "grid": (X.astype(np.int16), GRID, P("y", "x")),
        "both": (np.arange(4096.0), GRID, P(("x", "y"))),
        "scalar": (np.float32(2.5), LINE, P()),
        "empty": (np.zeros((0, 3)), LINE, P("x", None)),
        "half": (np.arange(6).astype(ml_dtypes.bfloat16), LINE, P(None)),
        "nan": (np.array([np.nan, -0.0, 5e-324]), sc.Mesh(x=1), P("x")),
    }
    arrays = {name: client.put(x, mesh=mesh, spec=spec, name=name) for name, (x, mesh, spec) in values.items()}
    handles = {name: array.handle for name, array in arrays.items()}
    view, doubled = arrays["rows"].T, client.jit(lambda x: x + x)
    same(doubled(view).get(), 2 * X.T)  # the values of the view are computed once
    put_at = time.time()
    other = client.put(X + 1)
    assert client.usage().named_arrays == len(values)
    saved = client.save_checkpoint()
    assert saved.names == tuple(sorted(values))
    assert saved.nbytes == sum(128 + np.asarray(x).nbytes for x, _, _ in values.values())
    assert all(entry.in_checkpoint == bool(entry.name) for entry in client.list().entries)

    kill_worker(servers.running, client)
    assert sorted(entry.name for entry in client.list().entries) == sorted(values)
    check_ages(client, put_at)
    for name, (x, mesh, spec) in values.items():
        there = client.open(name)
        assert (there.handle, there.mesh.axes, there.spec) == (handles[name], mesh.axes, spec)
        same(arrays[name].get(), np.asarray(x))
    assert refused(other.get).reason == "ARRAY_LOST"
    assert float(arrays["rows"].sum()) == X.sum()  # padding is zero
    same(doubled(view).get(), 2 * X.T)
    same(arrays["rows"].T.get(), X.T)

    client = servers.restart()
    check_ages(client, put_at)
    for name, (x, _, spec) in values.items():
        there = client.open(name)
        assert (there.handle, there.spec) == (handles[name], spec)
        same(there.get(), np.asarray(x))
    assert client.save_checkpoint().names == saved.names
    assert len([name for name in servers.files() if name.endswith(".npy")]) == len(values)  # written once


def went_back(error: sc.ShardcallError) -> bool:
    """Returns whether an error says that a name stands for the older values of a checkpoint."""
    text = r"the array 'n' went back to the checkpoint of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC.*client\.open\('n'\)"
    return isinstance(error, sc.ArrayLostError) and re.search(text, str(error)) is not None


def flip_bit(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def file_of(servers: Restarting, x: np.ndarray) -> Path:
    """The file of a checkpoint that has the values of an array."""
    files = (servers.folder / ".checkpoints").glob("*.npy")
    (file,) = (path for path in files if path.read_bytes()[128:] == x.tobytes())
    return file


def test_who_has_seen_lost_values_is_refused_and_a_damaged_file_by_its_name(servers):
    client = servers.start()
    h = client.put(np.zeros(4), name="n", durable=True)
    with sc.connect(servers.running.address) as other, sc.connect(servers.running.address) as third:
        early, late, part = other.open("n"), third.open("n"), h[:2]
        same(early.get(), np.zeros(4))
        same((end := early[2:]).get(), np.zeros(2))
        h += 1
        part += 1
        same(late.get(), np.array([2.0, 2, 1, 1]))
        restarts = client.usage().mesh.restarts
        for pid in servers.running.worker_pids():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: client.usage().mesh.restarts > restarts)
        same(early.get(), np.zeros(4))  # once the next mesh answers
        uses = [h.get, part.get, lambda: h.__iadd__(1), lambda: part.__setitem__(0, 5), lambda: float(h.sum())]
        assert all(went_back(refused(use)) for use in [*uses, late.get, client.save_checkpoint])
        end += 7  # its client has seen nothing later
        early[:2] += 7
        same(early.get(), np.full(4, 7.0))
        assert went_back(refused(h.get))  # still, although as many values have been written since
        same(client.open("n").get(), np.full(4, 7.0))
        h += 1
        for _ in range(2):
            same(part.get(), np.full(2, 8.0))
            other.delete(part.handle)  # as the end of the lease would
        assert went_back(refused(late.get))

    for value in (1.0, 2.0):
        for name in ("cut", "flipped", "good"):
            client.put(np.full(4, value) if name == "good" else X + value, name=name, replace=True)
        client.open("cut")[0] = -value
        saved = client.save_checkpoint()
    cut, flipped = X + 2, X + 2
    cut[0] = -2.0
    servers.kill()
    os.truncate(file_of(servers, cut), 200)
    flip_bit(file := file_of(servers, flipped), 130)
    servers.end()
    client = servers.start()
    same(client.open("good").get(), np.full(4, 2.0))
    assert "but it could not be restored: its file" in str(refused(lambda: client.open("cut")))
    error = refused(client.open("flipped").get)
    assert (error.reason, error.metadata["name"]) == ("FILE_DAMAGED", "flipped")
    assert client.save_checkpoint().names == saved.names
    flip_bit(file, 130)  # as the administrator may, from a backup
    same(client.open("flipped").get(), flipped)
