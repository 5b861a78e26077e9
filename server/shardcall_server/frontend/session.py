"""One start of the mesh: a worker process, the link to it and the commands it has not answered."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import subprocess
import sys
import threading
from concurrent.futures import Future

from shardcall_server.errors import CallError, Reason
from shardcall_server.framing import Link, LinkClosedError, LinkFullError
from shardcall_server.launcher import worker_environment
from shardcall_worker.v1 import link_pb2


class MeshSession:
    """A worker process from its start to its end, an *epoch*.

    The order in which commands are sent is the order of launches: `order` is held by whoever must see that
    nothing comes between a look at what the worker holds and the sending.

    Args:
        start: what devices to bring up.
        log_level: the least level that the worker logs.
    """

    def __init__(self, start: link_pb2.Start, log_level: str) -> None:
        self.epoch = secrets.randbits(64) | 1
        self.order = threading.RLock()
        self.ready: Future[link_pb2.Ready] = Future()
        self._pending: dict[int, Future[link_pb2.WorkerMessage]] = {}
        self._pending_lock = threading.Lock()
        self._ids = itertools.count(1)
        self._ended = False
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "shardcall_server.mesh.worker"),
                    *("--link-fd", str(theirs.fileno()), "--parent-pid", str(os.getpid())),
                    *("--log-level", log_level),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=worker_environment(os.environ),
            )
        self._link = Link(ours)
        self._link.send(link_pb2.FrontEndMessage(start=start).SerializeToString())

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the worker is gone."""
        return self._ended

    def command(self, message: link_pb2.FrontEndMessage, fd: int | None = None) -> Future[link_pb2.WorkerMessage]:
        """Sends a command; the future holds the answer, or a `CallError`.

        Args:
            message: the command; its call id is set here.
            fd: a descriptor for the worker; the caller keeps its own.

        Raises:
            SessionEndedError: the worker is gone and the command was not handed to it.
        """
        answer: Future[link_pb2.WorkerMessage] = Future()
        message.call_id = next(self._ids)
        with self._pending_lock:
            if self._ended:
                raise SessionEndedError
            self._pending[message.call_id] = answer
        try:
            self._link.send(message.SerializeToString(), fd)
        except LinkFullError:
            self._pending.pop(message.call_id, None)
            raise CallError(
                Reason.SERVER_BUSY, "the mesh does not take commands at present; repeat the call later"
            ) from None
        except LinkClosedError:
            self._ended = True
            # Either `run` fails the future, or nobody does and nothing was handed over.
            if self._pending.pop(message.call_id, None) is not None:
                raise SessionEndedError from None
        return answer

    def tell(self, message: link_pb2.FrontEndMessage) -> None:
        """Sends a command that has no answer; to a worker that is gone there is nothing to tell."""
        try:
            self._link.send(message.SerializeToString())
        except LinkClosedError:
            pass
        except LinkFullError:  # a worker that missed an eviction no longer holds what we think
            self.kill()

    def run(self) -> int:
        """Hands out the worker's answers until it is gone; returns its exit status.

        Every command without an answer then fails with MESH_RESTARTED, once the process has ended: until then
        it may write to the call's region.
        """
        try:
            for body, _ in self._link.frames():
                self._hand_out(link_pb2.WorkerMessage.FromString(body))
        finally:
            with self._pending_lock:
                self._ended = True
                lost, self._pending = self._pending, {}
            self.kill()
            status = self._process.wait()
            for answer in lost.values():
                answer.set_exception(mesh_restarted())
            if not self.ready.done():
                self.ready.set_exception(
                    CallError(Reason.MESH_NOT_READY, "the mesh ended before it was ready; see the server's log")
                )
        return status

    def _hand_out(self, message: link_pb2.WorkerMessage) -> None:
        if message.WhichOneof("answer") == "ready":
            self.ready.set_result(message.ready)
            return
        answer = self._pending.pop(message.call_id, None)
        if answer is not None:
            _settle(answer, message)

    def shut_down(self, timeout_s: float) -> None:
        """Asks the worker to end after what it has launched, and ends it if it does not."""
        self.tell(link_pb2.FrontEndMessage(shutdown=link_pb2.Shutdown()))
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Ends the worker at once."""
        self._process.kill()
        self._link.close()


class SessionEndedError(Exception):
    """The worker is gone; the command was not handed to it and may go to the next."""


def mesh_restarted() -> CallError:
    """The error of a call that the mesh was working on when it ended."""
    return CallError(
        Reason.MESH_RESTARTED,
        "the mesh restarted while it worked on this call, and its result is lost; "
        "repeat the call if that is right for you",
    )


def _settle(answer: Future[link_pb2.WorkerMessage], message: link_pb2.WorkerMessage) -> None:
    if message.WhichOneof("answer") != "failure":
        answer.set_result(message)
        return
    failure = message.failure
    answer.set_exception(
        CallError(Reason(failure.reason), failure.message, field=failure.field, metadata=dict(failure.metadata))
    )
