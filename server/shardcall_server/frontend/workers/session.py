"""One start of the mesh: a worker process, the link to it and the commands it has not answered."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from shardcall_server.errors import CallError, Reason
from shardcall_server.framing import Link, LinkClosedError, LinkFullError
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.launcher import worker_environment
from shardcall_worker.v1 import link_pb2


@dataclass(eq=False)
class _Pending:
    """A command that has not been answered.

    Attributes:
        answer: what its sender waits for.
        on_gathered: told how many bytes of its results are in place.
    """

    on_gathered: Callable[[int], None] | None
    answer: Future[link_pb2.WorkerMessage] = field(default_factory=Future)


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
        self._pending: dict[int, _Pending] = {}
        self._attached: set[int] = set()
        self._pending_lock = threading.Lock()
        self._ids = itertools.count(1)
        self._ended = False
        self._answered_at = time.monotonic()
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
                env=worker_environment(os.environ, start.platform),
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

    @property
    def idle(self) -> bool:
        """Whether every command has had its answer."""
        return not self._pending

    @property
    def idle_s(self) -> float:
        """For how long every command has had its answer, in seconds; 0 where one has not."""
        return 0.0 if self._pending else time.monotonic() - self._answered_at

    def command_if_idle(self, message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage] | None:
        """Sends a command if every other has been answered, and returns None if not; otherwise as `command`."""
        with self.order:
            return None if self._pending else self.command(message)

    def command(
        self,
        message: link_pb2.FrontEndMessage,
        memory: Iterable[MemoryFile] = (),
        on_gathered: Callable[[int], None] | None = None,
    ) -> Future[link_pb2.WorkerMessage]:
        """Sends a command; the future holds the answer, or a `CallError`.

        Args:
            message: the command; its call id is set here.
            memory: the files that it names; the worker maps those that it has not yet.
            on_gathered: told how many bytes of the results are in place, by the thread that reads the link.

        Raises:
            SessionEndedError: the worker is gone and the command was not handed to it.
        """
        pending = _Pending(on_gathered)
        message.call_id = next(self._ids)
        with self.order:
            for file in memory:
                self._attach(file)
            with self._pending_lock:
                if self._ended:
                    raise SessionEndedError
                self._pending[message.call_id] = pending
            try:
                self._send(message)
            except (CallError, SessionEndedError):
                # Where nothing is taken out, `run` has failed the answer: the command may have been handed over.
                if self._pending.pop(message.call_id, None) is not None:
                    raise
        return pending.answer

    def _attach(self, file: MemoryFile) -> None:
        if file.memory_id not in self._attached:
            attach = link_pb2.AttachMemory(memory_id=file.memory_id, size_bytes=file.nbytes)
            self._send(link_pb2.FrontEndMessage(attach_memory=attach), file.fd)
            self._attached.add(file.memory_id)

    def detach(self, memory_id: int) -> None:
        """Makes the worker let go of a memory file that no later command names."""
        with self.order:
            if memory_id in self._attached:
                self._attached.remove(memory_id)
                self.tell(link_pb2.FrontEndMessage(detach_memory=link_pb2.DetachMemory(memory_id=memory_id)))

    def _send(self, message: link_pb2.FrontEndMessage, fd: int | None = None) -> None:
        try:
            self._link.send(message.SerializeToString(), fd)
        except LinkFullError:
            raise CallError(
                Reason.SERVER_BUSY, "the mesh does not take commands at present; repeat the call later"
            ) from None
        except LinkClosedError:
            self._ended = True
            raise SessionEndedError from None

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
            for pending in lost.values():
                pending.answer.set_exception(mesh_restarted())
            if not self.ready.done():
                self.ready.set_exception(
                    CallError(Reason.MESH_NOT_READY, "the mesh ended before it was ready; see the server's log")
                )
        return status

    def _hand_out(self, message: link_pb2.WorkerMessage) -> None:
        if message.WhichOneof("answer") == "ready":
            self.ready.set_result(message.ready)
            return
        if message.WhichOneof("answer") == "gathered":
            waiting = self._pending.get(message.call_id)
            if waiting is not None and waiting.on_gathered is not None:
                waiting.on_gathered(message.gathered.byte_count)
            return
        pending = self._pending.pop(message.call_id, None)
        if pending is not None:
            self._answered_at = time.monotonic()
            _settle(pending.answer, message)

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
