"""Workers whose front end exits during their startup: they exit with it, however long their imports take."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from end_to_end.processes import wait_for
from servers import alive

_JAX_THAT_TAKES_LONG = """
import os, pathlib, time
pathlib.Path(os.environ["REACHED"]).touch()
time.sleep(600)
"""
_FRONT_END = """
import os, subprocess, sys
command = [sys.executable, "-m", "shardcall_server.mesh.start", "--link-fd", "0", "--parent-pid", str(os.getpid())]
print(subprocess.Popen(command, stdin=subprocess.PIPE).pid, flush=True)
sys.stdin.read()
"""


def test_a_worker_that_imports_ends_with_its_front_end(tmp_path: Path):
    (tmp_path / "jax.py").write_text(_JAX_THAT_TAKES_LONG)
    reached = tmp_path / "reached"
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": paths, "REACHED": str(reached)}
    command = [sys.executable, "-c", _FRONT_END]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as front_end:
        assert front_end.stdout is not None
        worker = int(front_end.stdout.readline())
        try:
            wait_for(reached.exists)
            front_end.kill()
            wait_for(lambda: not alive(worker))
        finally:
            if alive(worker):
                os.kill(worker, signal.SIGKILL)
