"""Arrays with names that outlive the mesh and the server: what a checkpoint has is there again, and nothing else."""

import os
import signal
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from end_to_end.filing import same
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

    client = servers.restart()
    check_ages(client, put_at)
    for name, (x, _, spec) in values.items():
        there = client.open(name)
        assert (there.handle, there.spec) == (handles[name], spec)
        same(there.get(), np.asarray(x))
    assert client.save_checkpoint().names == saved.names
    assert len([name for name in servers.files() if name.endswith(".npy")]) == len(values)  # written once
