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
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

_PR_SET_PDEATHSIG = 1
_PID = struct.Struct("i")
"""A request: 0 and a descriptor to fork, or the process to be killed; and the answer: the new process, or the exit
status of the killed one, which is negative for a signal."""


class ForkServer:
    """A process without threads that forks others, and kills them.

    Args:
        serve: what a forked process runs, with one end of a socket pair; its process ends afterwards.
    """

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()  # one request at a time
        parent_pid = os.getpid()
        if os.fork():
            theirs.close()
            return
        _run(partial(_serve_requests, theirs, serve), theirs, parent_pid)

    def fork(self) -> tuple[int, socket.socket]:
        """Returns a new process, and the other end of its socket pair.

        Raises:
            OSError: the process cannot be forked, or the process that forks has ended.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._lock:
                socket.send_fds(self._socket, [_PID.pack(0)], [theirs.fileno()])
                answer = self._socket.recv(_PID.size)
            if not answer or (pid := _PID.unpack(answer)[0]) == 0:
                raise ChildProcessError("the process that forks has ended, or cannot fork")
        except BaseException:
            ours.close()
            raise
        return pid, ours

    def kill(self, pid: int) -> int:
        """Kills a process that `fork` returned, once; returns its exit status, that of its own end if it had ended."""
        with self._lock, suppress(OSError):
            self._socket.send(_PID.pack(pid))
            if answer := self._socket.recv(_PID.size):
                return int(_PID.unpack(answer)[0])
        return 0


def _serve_requests(requests: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    children: set[int] = set()
    statuses: dict[int, int] = {}  # of children that have ended and were not killed yet
    this_pid = os.getpid()
    while True:
        data, fds, _, _ = socket.recv_fds(requests, _PID.size, 1)
        if not data:
            return
        while children and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            children.discard(ended[0])
            statuses[ended[0]] = os.waitstatus_to_exitcode(ended[1])
        (pid,) = _PID.unpack(data)
        if not fds:
            if pid in children:  # not reaped, so no other process has this number
                os.kill(pid, signal.SIGKILL)
                statuses[pid] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                children.discard(pid)
            requests.send(_PID.pack(statuses.pop(pid, 0)))
            continue
        with socket.socket(fileno=fds[0]) as served:
            try:
                pid = os.fork()
            except OSError:
                pid = 0
            else:
                if pid == 0:
                    _run(partial(serve, served), served, this_pid)
                children.add(pid)
        requests.send(_PID.pack(pid))


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
