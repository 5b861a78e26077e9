"""One start of the mesh: a worker process, the link to it and the commands it has not answered."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from shardcall_server.errors import CallError, Reason
from shardcall_server.framing import LinkClosedError, LinkFullError
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.frontend.workers.blame import Blame
from shardcall_server.frontend.workers.command import Command, key_of, suspects
from shardcall_server.frontend.workers.ends import End, Stop, end_of
from shardcall_server.frontend.workers.ledger import Ledger
from shardcall_server.frontend.workers.process import WorkerProcess
from shardcall_worker.v1 import link_pb2


class MeshSession:
    """A worker process from its start to its end, an *epoch*.

    The order in which commands are sent is the order of launches: `order` is held by whoever must see that
    nothing comes between a look at what the worker holds and the sending.

    Args:
        worker: the process; it may have stood by for long.
        start: what devices to bring up.
        blame: the programs that workers died of; theirs are counted here, and what is refused is not sent.
    """

    def __init__(self, worker: WorkerProcess, start: link_pb2.Start, blame: Blame) -> None:
        self.epoch = secrets.randbits(64) | 1
        self.order = threading.RLock()
        self.ready: Future[link_pb2.Ready] = Future()
        self.blame = blame
        self.heard = 0
        """How many messages of the worker's were read."""
        self._worker = worker
        self._link = worker.link
        self._ledger = Ledger()
        self._attached: set[int] = set()
        self._ids = itertools.count(1)
        self._ended = False
        self._stop: Stop | None = None
        self.tell(link_pb2.FrontEndMessage(start=start))

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._worker.pid

    @property
    def ended(self) -> bool:
        """Whether the worker is gone."""
        return self._ended

    @property
    def device_bytes(self) -> int:
        """The devices' memory as the platform tells it; 0 where it does not, or not yet."""
        ready = self.ready
        return ready.result().device_bytes if ready.done() and ready.exception() is None else 0

    @property
    def idle(self) -> bool:
        """Whether every command has had its answer."""
        return self._ledger.idle

    @property
    def idle_s(self) -> float:
        """For how long every command has had its answer, in seconds; 0 where one has not."""
        return self._ledger.idle_s

    @property
    def unheard(self) -> bool:
        """Whether the worker has said something that was not read yet."""
        return self._link.readable

    @property
    def cpu_ticks(self) -> int:
        """The processor time that the worker has used, in the system's clock ticks."""
        return self._worker.cpu_ticks

    def commands(self) -> list[Command]:
        """What the worker has not answered, in the order of sending."""
        return self._ledger.commands()

    def command_if_idle(self, message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage] | None:
        """Sends a command if every other has been answered, and returns None if not; otherwise as `command`."""
        with self.order:
            return self.command(message) if self.idle else None

    def command(
        self,
        message: link_pb2.FrontEndMessage,
        memory: Iterable[MemoryFile] = (),
        on_gathered: Callable[[int], None] | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Future[link_pb2.WorkerMessage]:
        """Sends a command; the future holds the answer, or a `CallError`.

        Args:
            message: the command; its call id is set here.
            memory: the files that it names; the worker maps those that it has not yet.
            on_gathered: told how many bytes of the results are in place, by the thread that reads the link.
            is_wanted: whether anybody waits for the answer. A program that nobody wants is stopped after a while.

        Raises:
            SessionEndedError: the worker is gone and the command was not handed to it.
            CallError: PROGRAM_REFUSED, or the worker does not read.
        """
        key = key_of(message)
        self.blame.check(key)
        kernel = message.prepare.call.kernel  # empty in others, whose kernel is known by their key
        command = Command(message.WhichOneof("command") or "", key, kernel, on_gathered, is_wanted)
        message.call_id = next(self._ids)
        with self.order:
            for file in memory:
                self._attach(file)
            if self._ended or not self._ledger.open(message.call_id, command):
                raise SessionEndedError
            try:
                self._send(message)
            except (CallError, SessionEndedError):
                # Where nothing is taken out, `run` has failed the answer: the command may have been handed over.
                if self._ledger.withdraw(message.call_id):
                    raise
        return command.answer

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
        if message.HasField("evict"):
            self._ledger.forget(message.evict.key_digest)
        try:
            self._link.send(message.SerializeToString())
        except LinkClosedError:
            pass
        except LinkFullError:  # a worker that missed an eviction no longer holds what we think
            self.stop(Stop("the worker did not read its link"))

    def run(self) -> End:
        """Hands out the worker's answers until it is gone; returns how it ended.

        Every command without an answer then fails with MESH_RESTARTED, once the process has ended: until then
        it may write to the call's region.
        """
        try:
            for body, _ in self._link.frames():
                self.heard += 1
                self._hand_out(link_pb2.WorkerMessage.FromString(body))
        finally:
            end = self._close()
        return end

    def _hand_out(self, message: link_pb2.WorkerMessage) -> None:
        match message.WhichOneof("answer"):
            case "ready":
                self.ready.set_result(message.ready)
            case "heartbeat":
                pass
            case "compiling":
                if (begun := self._ledger.find(message.call_id)) is not None:
                    begun.compiling = True
            case "gathered":
                waiting = self._ledger.find(message.call_id)
                if waiting is not None and waiting.on_gathered is not None:
                    waiting.on_gathered(message.gathered.byte_count)
            case _:
                if (answered := self._ledger.answered(message)) is not None:
                    _settle(answered.answer, message)

    def _close(self) -> End:
        """Ends the process, counts against the programs that it died of, and then tells who waits for answers."""
        self._ended = True
        lost = self._ledger.close()
        status, stop = self._worker.end(), self._stop
        end = end_of(status, stop, suspects(lost, self._ledger.proven))
        for key in end.blamed:
            self.blame.count(key)
        for command in lost:
            own = stop.error if stop is not None and command is stop.culprit else None
            command.answer.set_exception(own or mesh_restarted())
        if not self.ready.done():
            self.ready.set_exception(
                CallError(Reason.MESH_NOT_READY, "the mesh ended before it was ready; see the server's log")
            )
        return end

    def shut_down(self, timeout_s: float) -> None:
        """Asks the worker to end after what it has launched, and ends it if it does not."""
        self.tell(link_pb2.FrontEndMessage(shutdown=link_pb2.Shutdown()))
        if not self.ready.done() or not self._worker.wait(timeout_s):
            self._worker.kill()

    def stop(self, stop: Stop) -> None:
        """Ends the worker at once."""
        if not self._ended:
            self._stop = self._stop or stop
            self._worker.kill()


class SessionEndedError(Exception):
    """The worker is gone; the command was not handed to it and may go to the next."""


def mesh_restarted() -> CallError:
    """The error of a call that the mesh was working on when it ended."""
    return CallError(
        Reason.MESH_RESTARTED,
        "the mesh restarted while it worked on this call, and its result is lost; "
        "the call may be repeated, since kernels change nothing",
    )


def _settle(answer: Future[link_pb2.WorkerMessage], message: link_pb2.WorkerMessage) -> None:
    if message.WhichOneof("answer") != "failure":
        answer.set_result(message)
        return
    failure = message.failure
    answer.set_exception(
        CallError(Reason(failure.reason), failure.message, field=failure.field, metadata=dict(failure.metadata))
    )
