"""A worker started by the agent of a host."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Callable

from shardcall_server.frontend.hosts.relay import RelayedLink
from shardcall_server.frontend.workers.exit_reason import StopRequest
from shardcall_server.frontend.workers.worker import DataLink, WorkerLink
from shardcall_server.link.framing import Link
from shardcall_worker.v1 import host_service_pb2

_EXIT_S = 0.5  # a process that has closed its link is about to exit, and its status explains why
_KILL_S = 2.0


class HostedWorker:
    """A worker started by the agent of a host.

    Args:
        hello: the agent's description of the host.
        started: the agent's description of the worker.
        relayed: the link to it through the agent.
        link: the socket of a worker on this host; None for one that is reached through the agent.
        ask_to_stop: asks the agent to kill it.

    Raises:
        OSError: the worker is on this host and has exited already.
    """

    def __init__(
        self,
        hello: host_service_pb2.Hello,
        started: host_service_pb2.WorkerStarted,
        relayed: RelayedLink,
        link: socket.socket | None,
        ask_to_stop: Callable[[], None],
    ) -> None:
        self.host = hello.name
        self.address = hello.address
        self.devices = hello.devices
        self.started = started
        self.lost: StopRequest | None = None
        self.last_output = ""  # it is in the log of the agent
        self.out_of_memory = False
        self.relayed = relayed
        self.data_link: DataLink | None = relayed if link is None else None
        self.link: WorkerLink = relayed if link is None else Link(link)
        self.cpu_ticks = 0
        self._ask_to_stop = ask_to_stop
        self._exited = threading.Event()  # set when the agent reports the exit, or is gone
        self._status = -signal.SIGKILL
        self._pidfd_lock = threading.Lock()  # a closed descriptor's number may be reused at once
        self._pidfd = -1
        if link is not None:
            try:
                self._pidfd = os.pidfd_open(started.pid)
            except OSError:
                self.link.close()
                raise

    @property
    def pid(self) -> int:
        """The process id on its host."""
        return self.started.pid

    @property
    def ended(self) -> bool:
        """True once the worker is known to have exited."""
        return self._exited.is_set()

    def set_exited(self, ended: host_service_pb2.WorkerEnded) -> None:
        """Records the exit that the agent reports."""
        self._status, self.out_of_memory = ended.status, ended.out_of_memory
        self._exited.set()
        if self.data_link is not None:  # a socket of its own closes once all its messages are read
            self.link.close()

    def set_lost(self, reason: str) -> None:
        """Records that its agent is gone."""
        self.lost = self.lost or StopRequest(reason)
        self.kill()
        self._exited.set()

    def wait(self, timeout_s: float) -> bool:
        """Waits for the worker to exit; returns False if it has not."""
        return self._exited.wait(timeout_s)

    def terminate(self) -> int:
        """Closes the link and ends the process; returns its exit status, or minus the number of the signal.

        Until this method returns, a worker on this host may write to shared memory.
        """
        self.link.close()
        if not self.wait(_EXIT_S):
            self.kill()
            self.wait(_KILL_S)
        if self._pidfd >= 0:
            exited = select.poll()
            exited.register(self._pidfd, select.POLLIN)
            exited.poll()  # it was killed
        with self._pidfd_lock:
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
        return self._status

    def kill(self) -> None:
        """Kills the worker at once."""
        with self._pidfd_lock, contextlib.suppress(OSError):  # it has exited
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._ask_to_stop()
        self.link.close()
