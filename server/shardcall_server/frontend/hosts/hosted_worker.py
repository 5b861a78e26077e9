"""A worker that a host's agent has started."""

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

_EXIT_S = 0.5  # a process that has closed its link is about to end; what it ends with tells why
_KILL_S = 2.0


class HostedWorker:
    """A worker that a host's agent has started.

    Args:
        hello: what the agent of its host said of that.
        started: what the agent says of it.
        relayed: the way to it through the agent.
        link: the socket of a worker on this host; None for one that is reached through the agent.
        ask_to_stop: has the agent end it.

    Raises:
        OSError: a worker on this host has ended already.
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
        self.relayed = relayed
        self.data_link: DataLink | None = relayed if link is None else None
        self.link: WorkerLink = relayed if link is None else Link(link)
        self.cpu_ticks = 0
        self._ask_to_stop = ask_to_stop
        self._exited = threading.Event()
        self._status = -signal.SIGKILL
        self._pidfd_lock = threading.Lock()  # its number is another's as soon as it is closed
        self._pidfd = -1
        if link is not None:
            try:
                self._pidfd = os.pidfd_open(started.pid)
            except OSError:
                self.link.close()
                raise

    @property
    def pid(self) -> int:
        """Its process id, on its host."""
        return self.started.pid

    @property
    def ended(self) -> bool:
        """Whether it is known to be gone."""
        return self._exited.is_set()

    def set_exited(self, status: int) -> None:
        """Tells what the agent says: that it has ended, and how."""
        self._status = status
        self._exited.set()
        if self.data_link is not None:  # a link of its own ends when all has been read that it said
            self.link.close()

    def set_lost(self, reason: str) -> None:
        """Tells that its agent is gone."""
        self.lost = self.lost or StopRequest(reason)
        self.kill()
        self._exited.set()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended, after waiting for that."""
        return self._exited.wait(timeout_s)

    def terminate(self) -> int:
        """Ends it; returns its exit status, or minus the signal that ended it.

        Until it returns, a worker on this host may write to memory that it shares.
        """
        self.link.close()
        if not self.wait(_EXIT_S):
            self.kill()
            self.wait(_KILL_S)
        if self._pidfd >= 0:
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
            ended.poll()  # it was killed
        with self._pidfd_lock:
            if self._pidfd >= 0:
                os.close(self._pidfd)
                self._pidfd = -1
        return self._status

    def kill(self) -> None:
        """Ends it at once."""
        with self._pidfd_lock, contextlib.suppress(OSError):  # it has ended
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self._ask_to_stop()
        self.link.close()
