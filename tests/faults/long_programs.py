"""Programs that run until a server's limits end them, and small calls that must stay right beside them."""

import os

import numpy as np
from end_to_end.processes import X
from servers import ServerProcess

import shardcall as sc

SIGNAL = np.ones(1 << 20, np.float32)
WINDOW = np.ones(1 << 17, np.float32)  # with SIGNAL: half a minute of a quiet machine


def works(client: sc.Client) -> None:
    """Makes a small call, again if the mesh ended meanwhile, and looks at its result."""
    while True:
        try:
            result = client.diff(X, axis=0).array
        except sc.MeshRestartedError:
            continue
        np.testing.assert_array_equal(result, np.diff(X, axis=0))
        return


def convolve(client: sc.Client, timeout: float = 300.0) -> sc.Result:
    """Runs the long program."""
    return client.convolve(SIGNAL, WINDOW, timeout=timeout)


def compile_long(client: sc.Client) -> None:
    """Compiles the long program, so that its next call computes at once."""
    client.compile("convolve", sc.Array(SIGNAL.shape, "float32"), sc.Array(WINDOW.shape, "float32"))


def the_worker(server: ServerProcess) -> int:
    """The worker of a mesh that answers; a spare one beside it has few threads."""
    return max(server.worker_pids(), key=lambda pid: len(os.listdir(f"/proc/{pid}/task")))
