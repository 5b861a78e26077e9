"""A worker process and the link to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from shardcall_server.frontend.workers.exit_reason import StopRequest
from shardcall_server.frontend.workers.worker import DataLink, WorkerLink
from shardcall_server.launcher import worker_environment
from shardcall_server.link.framing import Link

_OWN_END_S = 0.5  # a process that has closed its link is about to end; what it ends with tells why


class WorkerProcess:
    """A worker process, which waits for `Start` once it has imported JAX and the kernels.

    Linux ends it with the *thread* that makes it.

    Args:
        platform: of its devices; empty for what JAX finds.
        log_level: the least level that it logs.
    """

    host: str = ""
    data_link: DataLink | None = None
    lost: StopRequest | None = None

    def __init__(self, platform: str, log_level: str) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "shardcall_server.mesh.start"),
                    *("--link-fd", str(theirs.fileno()), "--parent-pid", str(os.getpid())),
                    *("--log-level", log_level),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,  # gloo tells there of its connections
                env=worker_environment(os.environ, platform),
            )
        self.link: WorkerLink = Link(ours)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
        return self._process.poll() is not None

    @property
    def stands_by(self) -> bool:
        """Whether it waits for `Start`: it has sent its first sign of life, and nobody has read that yet."""
        return not self.ended and self.link.readable

    @property
    def cpu_ticks(self) -> int:
        """The processor time that it has used, in the system's clock ticks; 0 where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        return int(fields[11]) + int(fields[12])

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, after waiting for that."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def wait_status(self) -> int:
        """Waits for its end; returns its exit status, or minus the signal that ended it."""
        return self._process.wait()

    def terminate(self) -> int:
        """Ends a process that has closed its link; returns its exit status, or minus the signal that ended it."""
        self.link.close()
        if not self.wait(_OWN_END_S):
            self._process.kill()
        return self._process.wait()

    def kill(self) -> None:
        """Ends it at once."""
        self._process.kill()
        self.link.close()
