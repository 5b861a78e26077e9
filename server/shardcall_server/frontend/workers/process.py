"""A worker process and the link to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from shardcall_server.frontend.workers.worker_output import WorkerOutput
from shardcall_server.host_memory import oom_kills
from shardcall_server.launcher import worker_environment
from shardcall_server.link.framing import Link

if TYPE_CHECKING:  # the first worker is started before the modules of the front end are imported
    from shardcall_server.frontend.workers.exit_reason import StopRequest
    from shardcall_server.frontend.workers.worker import DataLink, WorkerLink

_EXIT_S = 0.5  # a process that has closed its link is about to exit, and its status explains why


class WorkerProcess:
    """A worker process, which waits for `Start` once it has imported JAX and the kernels.

    Linux kills the process when the *thread* that started it exits.

    Args:
        platform: the platform of its devices; empty for JAX's default.
        log_level: the lowest level that it logs.
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
                    *["--log-text"] * sys.stderr.isatty(),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # gloo logs its connections to standard output
                stderr=subprocess.STDOUT,
                env=worker_environment(os.environ, platform),
            )
        assert self._process.stdout is not None
        self._output = WorkerOutput(self._process.stdout)
        self._oom_kills = oom_kills()
        self.link: WorkerLink = Link(ours)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def out_of_memory(self) -> bool:
        """True if the kernel has ended a process of this control group for lack of memory since the worker started."""
        return oom_kills() > self._oom_kills

    @property
    def last_output(self) -> str:
        """The last line that it printed; empty if there is none."""
        return self._output.last_line

    @property
    def ended(self) -> bool:
        """True once the process has exited."""
        return self._process.poll() is not None

    @property
    def stands_by(self) -> bool:
        """True while the process waits for `Start`: its first heartbeat has come and has not been read."""
        return not self.ended and self.link.readable

    @property
    def cpu_ticks(self) -> int:
        """The CPU time used, in clock ticks of the system; 0 if unknown."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0
        return int(fields[11]) + int(fields[12])

    def wait(self, timeout_s: float) -> bool:
        """Waits for the process to exit; returns False if it has not."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._output.wait()
        return True

    def wait_status(self) -> int:
        """Waits for the process to exit; returns its exit status, or minus the number of the signal."""
        status = self._process.wait()
        self._output.wait()
        return status

    def terminate(self) -> int:
        """Closes the link and ends the process; returns its exit status, or minus the number of the signal."""
        self.link.close()
        if not self.wait(_EXIT_S):
            self._process.kill()
        return self.wait_status()

    def kill(self) -> None:
        """Kills the process at once."""
        self._process.kill()
        self.link.close()
