"""Stored verdicts of known-answer tests for the servers of the tests.

Each server would otherwise run the tests in a cache directory of its own: half a minute of processor time. That the
compiler passes them is for `mesh/test_known_answers.py` to see; here they are taken to have passed.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".pytest_cache" / "known-answers"
FILE_NAME = "known_answers.json"
DEVICES = (8, 2)  # of most servers of the tests; those of others run what calls wait for
_DIGESTS = """
import json, os, sys
from shardcall_server.launcher import worker_environment
os.environ.update(worker_environment(os.environ))
from shardcall_server.mesh import worker
from shardcall_server.known_answers.suite import Suite
from shardcall_worker.v1 import link_pb2
kernels = worker.load_kernels()
worker.start_backend(link_pb2.Start(virtual_devices=int(sys.argv[1])))
suite = Suite(kernels, worker._platform())
print(json.dumps({suite.digest(name).hex(): name for name in suite.known_answers}))
"""


def give(folder: str | Path) -> None:
    """Copies the verdicts to a server's cache directory that has none."""
    file = Path(folder) / FILE_NAME
    if not file.exists():
        file.parent.mkdir(mode=0o700, exist_ok=True)
        copy = file.with_name(f"{FILE_NAME}.{os.getpid()}")
        shutil.copy(verdicts(), copy)
        copy.replace(file)  # servers of other processes of the tests may have the folder too


@cache
def verdicts() -> Path:
    """The file of verdicts, made once for a checkout."""
    FOLDER.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = FOLDER / f"{_fingerprint()}.json"
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            command = [sys.executable, "-c", _DIGESTS]
            asked = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in DEVICES]
            passed = {
                digest: {"known_answer": name, "failures": {}}
                for process in asked
                for digest, name in json.loads(process.communicate()[0]).items()
            }
            file.write_text(json.dumps({"format": 1, "verdicts": passed}))
            file.chmod(0o600)
    return file


def _fingerprint() -> str:
    """The inputs of the digests."""
    server = ROOT / "server" / "shardcall_server"
    files = [
        server / "launcher.py",
        *sorted((server / "kernels").rglob("*.py")),
        *sorted(server.glob("known_answers/*.py")),
    ]
    processor = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
    features = [line for line in processor if line.startswith(("model", "flags", "Features", "CPU"))]
    versions = f"{version('jaxlib')} {os.environ.get('XLA_FLAGS', '')} {features}".encode()
    return hashlib.sha256(b"\0".join([*(file.read_bytes() for file in files), versions])).hexdigest()
