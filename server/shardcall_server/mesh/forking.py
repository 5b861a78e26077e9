"""Processes that a worker forks before it starts its devices, when it has no other thread yet.

A fork shares the imported modules, so that a process starts in 10 ms instead of 2 s, and takes little memory. Later,
with the threads of XLA, a worker cannot fork; so it forks one process, which forks others for it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_PR_SET_PDEATHSIG = 1
_FORK = b"f"


class ForkServer:
    """A process without threads that forks others.

    Args:
        serve: what a forked process runs, with one end of a socket pair; its process ends afterwards.
    """

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._socket, theirs = socket.socketpair()
        parent_pid = os.getpid()
        if os.fork():
            theirs.close()
            return
        _run(partial(_fork_on_request, theirs, serve), theirs, parent_pid)

    def fork(self) -> socket.socket:
        """Returns the other end of the socket pair of a new process.

        Raises:
            OSError: the process that forks has ended.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._socket, [_FORK], [theirs.fileno()])
        return ours


def _fork_on_request(requests: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forked processes leave no zombies
    this_pid = os.getpid()
    while True:
        data, fds, _, _ = socket.recv_fds(requests, 1, 1)
        if not data:
            return
        with socket.socket(fileno=fds[0]) as served:
            if not os.fork():
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _run(partial(serve, served), served, this_pid)


def _run(body: Callable[[], None], kept: socket.socket, parent_pid: int) -> None:
    """Runs the body of a forked process, which ends with it and with its parent."""
    status = 1
    with suppress(BaseException):
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent_pid:
            _close_others(kept.fileno())
            gc.freeze()
            body()
            status = 0
    os._exit(status)


def _close_others(kept_fd: int) -> None:
    """Closes the descriptors of the parent, whose peers would not see its end otherwise."""
    for name in os.listdir("/proc/self/fd") if sys.platform == "linux" else ():
        fd = int(name)
        if fd > 2 and fd != kept_fd:
            with suppress(OSError):
                os.close(fd)
