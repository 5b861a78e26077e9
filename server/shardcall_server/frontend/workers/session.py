"""One start of the mesh: its worker processes, the links to them and the commands they have not answered."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import structlog

from shardcall.v1 import kernel_pb2
from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.frontend.workers.command import Command, key_of, subject_of, suspects
from shardcall_server.frontend.workers.exit_reason import (
    ExitKind,
    ExitReason,
    StopRequest,
    disagreement,
    error_of,
    exit_reason_of,
    oom_kills,
)
from shardcall_server.frontend.workers.merging import DisagreementError, merge
from shardcall_server.frontend.workers.pending_commands import PendingCommands
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.startup_barrier import StartupBarrier
from shardcall_server.frontend.workers.worker import Worker
from shardcall_server.frontend.workers.worker_connection import WorkerConnection
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2

_OTHERS_S = 0.3  # those that end because another ended may be seen first


class MeshSession:
    """The worker processes of a mesh from their start to their end, an *epoch*.

    The order in which commands are sent is the order of launches, the same for every worker: `order` is held by
    whoever must see that nothing comes between a look at what the workers hold and the sending.

    Args:
        workers: the processes, in their order; they may have stood by for long.
        starts: what devices each is to bring up.
        quarantine: the programs that workers died of; theirs are counted here, and what is refused is not sent.
    """

    def __init__(self, workers: Sequence[Worker], starts: Sequence[link_pb2.Start], quarantine: Quarantine) -> None:
        self.epoch = secrets.randbits(64) | 1
        self.launch_lock = threading.RLock()
        self.ready: Future[link_pb2.Ready] = Future()
        self.quarantine = quarantine
        self.connections = tuple(WorkerConnection(worker, i) for i, worker in enumerate(workers))
        self._hosts = [worker.host for worker in workers]
        self._pending_commands = PendingCommands(len(workers))
        self._startup_barrier = StartupBarrier(self._hosts)
        self._table: BlockTable | None = None
        self._ids = itertools.count(1)
        self._sequence = itertools.count(1)
        self._ended = False
        self._first_to_end: WorkerConnection | None = None
        self._end_lock = threading.Lock()
        self._over = threading.Event()
        self._fault: BaseException | None = None
        self._stop: StopRequest | None = None
        self._oom_kills = oom_kills()
        self.newest_call_id = 0
        """Of the last command that has an answer."""
        self.exit_reason: ExitReason | None = None
        """How it ended; None while it has not."""
        for connection, start in zip(self.connections, starts, strict=True):
            connection.notify(link_pb2.FrontEndMessage(start=start))

    @property
    def pid(self) -> int:
        """The first worker's process id."""
        return self.connections[0].worker.pid

    @property
    def shares_memory(self) -> bool:
        """Whether all workers are on the front end's host."""
        return all(connection.worker.data_link is None for connection in self.connections)

    @property
    def ended(self) -> bool:
        """Whether a worker is gone."""
        return self._ended

    @property
    def device_bytes(self) -> int:
        """The devices' memory as the platform tells it; 0 where it does not, or not yet."""
        ready = self.ready
        return ready.result().device_bytes if ready.done() and ready.exception() is None else 0

    @property
    def idle(self) -> bool:
        """Whether every command has had its answer."""
        return self._pending_commands.idle

    @property
    def idle_s(self) -> float:
        """For how long every command has had its answer, in seconds; 0 where one has not."""
        return self._pending_commands.idle_s

    def commands(self) -> list[Command]:
        """What the worker has not answered, in the order of sending."""
        return self._pending_commands.commands()

    def command_if_idle(self, message: link_pb2.FrontEndMessage) -> Future[link_pb2.WorkerMessage] | None:
        """Sends a command if every other has been answered, and returns None if not; otherwise as `command`."""
        with self.launch_lock:
            return self.command(message) if self.idle else None

    def command(
        self,
        message: link_pb2.FrontEndMessage,
        memory: Iterable[MemoryFile] = (),
        on_gathered: Callable[[int], None] | None = None,
        is_wanted: Callable[[], bool] = lambda: True,
        plan: kernel_pb2.Plan | None = None,
    ) -> Future[link_pb2.WorkerMessage]:
        """Sends a command; the future holds the answer, or a `CallError`.

        Args:
            message: the command; its call id is set here.
            memory: the files that it names; the worker maps those that it has not yet.
            on_gathered: told how many bytes of the results are in place, by the thread that reads the link.
            is_wanted: whether anybody waits for the answer. A program that nobody wants is stopped after a while.
            plan: how the command's arrays lie on the mesh; None for one that moves none.

        Raises:
            SessionEndedError: the worker is gone and the command was not handed to it.
            CallError: PROGRAM_REFUSED, or the worker does not read.
        """
        key = key_of(message)
        self.quarantine.check(key)
        kind = message.WhichOneof("command") or ""
        command = Command(kind, key, subject_of(message), on_gathered, is_wanted, plan)
        self.newest_call_id = message.call_id = command.call_id = next(self._ids)
        if len(self.connections) > 1 and message.HasField("measure"):
            message.measure.max_seconds = 0.0  # processes that stop by their own clocks would disagree
        with self.launch_lock:
            if self._ended or not self._pending_commands.open(message.call_id, command):
                raise SessionEndedError
            try:
                self._send(message, tuple(memory), plan)
            except Exception:
                # Where nothing is taken out, `run` has failed the answer: the command may have been handed over.
                if self._pending_commands.withdraw(message.call_id):
                    raise
        return command.answer

    def detach(self, memory_id: int) -> None:
        """Makes the workers let go of a memory file that no later command names."""
        with self.launch_lock:
            for connection in self.connections:
                connection.detach(memory_id)

    def _send(
        self, message: link_pb2.FrontEndMessage, memory: Sequence[MemoryFile] = (), plan: kernel_pb2.Plan | None = None
    ) -> None:
        """Sends a message to every worker; to all of them or, if the mesh is to go on, to none.

        Raises:
            SessionEndedError: a worker is gone, and none was handed the message. Where some were, the mesh ends.
            CallError: a worker does not read; none was handed the message.
        """
        for connection in self.connections:
            connection.check_capacity(message.ByteSize())
        message.sequence = next(self._sequence)
        body, sent = message.SerializeToString(), 0
        try:
            for connection in self.connections:
                connection.send(message, body, memory, plan, self._table)
                sent += 1
        except LinkFullError:
            self.stop(StopRequest("a worker did not read its link"))
        except LinkClosedError:
            self._ended = True
        except Exception:  # the next command would be one too many for those that have not had this one
            self.stop(StopRequest("a command could not be sent"))
            if not sent:
                raise
            structlog.get_logger().exception("a command could not be sent to every worker")
        if not sent:
            raise SessionEndedError

    def notify(self, message: link_pb2.FrontEndMessage) -> None:
        """Sends a command that has no answer; to workers that are gone there is nothing to tell."""
        if message.HasField("evict"):
            self._pending_commands.forget(message.evict.key_digest)
        with self.launch_lock:
            try:
                self._send(message)
            except SessionEndedError:
                pass
            except CallError:  # workers that missed an eviction no longer hold what we think
                self.stop(StopRequest("a worker did not read its link"))

    def run(self) -> ExitReason:
        """Hands out the workers' answers until one of them is gone; returns how it ended.

        Every command without an answer then fails with MESH_RESTARTED, once the processes have ended: until then
        they may write to the call's region.
        """
        try:
            for connection in self.connections[1:]:
                name = f"link-{connection.index}"
                threading.Thread(target=self._read, args=[connection], name=name, daemon=True).start()
            self._read(self.connections[0])
            self._over.wait()
        finally:
            end = self._close()
        if self._fault is not None:
            raise self._fault
        return end

    def _read(self, connection: WorkerConnection) -> None:
        """Hands out one worker's answers until it is gone, or another is."""
        try:
            for message in connection.messages():
                self._hand_out(connection, message)
        except Exception as error:  # noqa: BLE001  # it is raised where the session ends
            self._fault = self._fault or error
        finally:
            with self._end_lock:
                is_first = self._first_to_end is None
                self._first_to_end = self._first_to_end or connection
            self._ended = True
            if is_first:
                self._end_others(connection)
                self._over.set()

    def _end_others(self, first: WorkerConnection) -> None:
        until = time.monotonic() + _OTHERS_S
        for other in self.connections:
            if other is not first:
                other.leave(max(0.0, until - time.monotonic()))

    def _hand_out(self, connection: WorkerConnection, message: link_pb2.WorkerMessage) -> None:
        match message.WhichOneof("answer"):
            case "ready":
                self._be_ready(connection, message.ready)
            case "heartbeat":
                connection.heartbeat = message.heartbeat
            case "compiling":
                if (begun := self._pending_commands.find(message.call_id)) is not None:
                    begun.compiling = True
            case "gathered":
                self._pending_commands.gathered(message.call_id, connection.index, message.gathered.byte_count)
            case "failure" if not message.call_id:
                self.stop(_failed(connection, message.failure))
            case _:
                self._answer(connection, message)

    def _be_ready(self, connection: WorkerConnection, ready: link_pb2.Ready) -> None:
        try:
            merged = self._startup_barrier.add(connection.index, ready)
        except DisagreementError as error:
            self.stop(StopRequest(str(error)))
            return
        if merged is not None:
            if len(self.connections) > 1 or connection.worker.data_link is not None:
                self._table = BlockTable(merged.devices)
            self.ready.set_result(merged)

    def _answer(self, connection: WorkerConnection, message: link_pb2.WorkerMessage) -> None:
        collected = self._pending_commands.collect(connection.index, message)
        if collected is None:
            return
        command, answers = collected
        try:
            merged = merge(answers, self._hosts, command.plan, self._table)
        except DisagreementError as error:
            self.stop(disagreement(str(error), command, error.failure))
            return
        if merged.HasField("failure"):
            self._forget_made(answers, merged.failure)
        elif merged.HasField("prepared") and merged.prepared.plan.key_digest in command.unmade:
            failure = command.unmade[merged.prepared.plan.key_digest]
            merged = link_pb2.WorkerMessage(call_id=message.call_id, failure=failure)
        if (answered := self._pending_commands.answered(merged)) is not None:
            _settle(answered.answer, merged)

    def _forget_made(self, answers: Sequence[link_pb2.WorkerMessage], failure: link_pb2.Failure) -> None:
        """Has the workers forget a program that not all of them could make, for whatever call was sent before that."""
        for answer in answers:
            if answer.WhichOneof("answer") == "prepared":
                digest = answer.prepared.plan.key_digest
                with self.launch_lock:
                    for command in self._pending_commands.commands():
                        command.unmade[digest] = failure
                    self.notify(link_pb2.FrontEndMessage(evict=link_pb2.Evict(key_digest=digest)))
                return

    def _close(self) -> ExitReason:
        """Ends the processes, counts against the programs that they died of, and then tells who waits for answers."""
        self._ended = True
        lost = self._pending_commands.close()
        end = self.exit_reason = self._end_of_workers(lost)
        for key in end.quarantined_keys:
            self.quarantine.count(key)
        for command in lost:
            own = self._stop.error if self._stop is not None and command is self._stop.culprit else None
            command.answer.set_exception(own or mesh_restarted(end.kind, is_suspect=end.is_suspect(command)))
        if not self.ready.done():
            self.ready.set_exception(
                CallError(Reason.MESH_NOT_READY, f"the mesh ended before it was ready: {end.reason}")
            )
        return end

    def _end_of_workers(self, lost: Sequence[Command]) -> ExitReason:
        """How the mesh ended: by the worker that ended first, unless another's end explains that one's."""
        first = self._first_to_end or self.connections[0]
        connections = [first, *(other for other in self.connections if other is not first)]
        ends = []
        for connection, status in zip(connections, _end_processes(connections), strict=True):
            stop = self._stop or connection.worker.lost
            oom_killed = not connection.worker.host and oom_kills() > self._oom_kills
            end = exit_reason_of(status, stop, suspects(lost, self._pending_commands.proven), oom_killed=oom_killed)
            by_itself = connection.worker.host and stop is None
            told = f"{end.reason}, on host {connection.worker.host}" if by_itself else end.reason
            if connection is first or (not connection.was_killed and (stop is not None or not end.is_fault)):
                ends.append(replace(end, reason=told))
        foreign = (end for end in ends[1:] if end.kind in {ExitKind.KILLED, ExitKind.UNRESPONSIVE})
        return ends[0] if self._stop is not None else next(foreign, ends[0])

    def shut_down(self, timeout_s: float) -> None:
        """Asks the workers to end after what they have launched, and ends those that do not."""
        self.notify(link_pb2.FrontEndMessage(shutdown=link_pb2.Shutdown()))
        deadline = time.monotonic() + timeout_s
        for connection in self.connections:
            if not self.ready.done() or not connection.worker.wait(max(0.0, deadline - time.monotonic())):
                connection.worker.kill()

    def stop(self, stop: StopRequest) -> None:
        """Ends the workers at once."""
        if not self._ended:
            self._stop = self._stop or stop
            for connection in self.connections:
                connection.worker.kill()


class SessionEndedError(Exception):
    """The worker is gone; the command was not handed to it and may go to the next."""


def mesh_restarted(kind: ExitKind | None = None, *, is_suspect: bool = False) -> CallError:
    """The error of a call that the mesh was working on when it ended.

    Args:
        kind: how it ended; None where that is not known yet.
        is_suspect: whether it may have ended because of this call.
    """
    why = f" ({kind.description})" if kind else ""
    metadata = {"ended": kind.value} if kind else {}
    if is_suspect:
        metadata["suspect"] = "true"
    return CallError(
        Reason.MESH_RESTARTED,
        f"the mesh restarted while it worked on this call{why}, and its result is lost; "
        "the call may be repeated, since kernels change nothing",
        metadata=metadata,
    )


def _end_processes(connections: Sequence[WorkerConnection]) -> list[int]:
    """Ends workers, all at a time: those of hosts that say nothing are waited for."""
    if len(connections) == 1:
        return [connections[0].worker.terminate()]
    with ThreadPoolExecutor(len(connections), thread_name_prefix="end") as threads:
        return list(threads.map(lambda connection: connection.worker.terminate(), connections))


def _failed(connection: WorkerConnection, failure: link_pb2.Failure) -> StopRequest:
    """Why a worker ends that tells so itself."""
    if failure.reason == Reason.MESH_NOT_READY:
        where = f" of host {connection.worker.host}" if connection.worker.host else ""
        return StopRequest(f"the devices{where} could not be started: {failure.message}", kind=ExitKind.CRASHED)
    return StopRequest(f"the workers got out of step: {failure.message}")


def _settle(answer: Future[link_pb2.WorkerMessage], message: link_pb2.WorkerMessage) -> None:
    if message.WhichOneof("answer") != "failure":
        answer.set_result(message)
        return
    answer.set_exception(error_of(message.failure))
