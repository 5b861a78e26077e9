"""Session of the mesh, one epoch: its worker processes, the links to them and their pending commands."""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace

import structlog

from shardcall.v1 import kernel_pb2
from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.locks import check_held, rlock
from shardcall_server.frontend.memory.arena import MemoryFile
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.workers.batch import Batch
from shardcall_server.frontend.workers.block_table import BlockTable
from shardcall_server.frontend.workers.command import Command, identify, suspects
from shardcall_server.frontend.workers.exit_reason import (
    ExitCause,
    ExitReason,
    StopRequest,
    disagreement,
    exit_reason_of,
)
from shardcall_server.frontend.workers.isolation import IsolatedError
from shardcall_server.frontend.workers.merging import DisagreementError, merge
from shardcall_server.frontend.workers.pending_commands import PendingCommands
from shardcall_server.frontend.workers.quarantine import Quarantine
from shardcall_server.frontend.workers.startup_barrier import StartupBarrier
from shardcall_server.frontend.workers.worker import Worker
from shardcall_server.frontend.workers.worker_connection import WorkerConnection, terminate_workers
from shardcall_server.link.failures import decode_failure
from shardcall_server.link.framing import LinkClosedError, LinkFullError
from shardcall_worker.v1 import link_pb2

LAUNCH_ORDER = 20
"""The order of the launch lock, under which only leaves are taken."""

QUIET_S = 1.0
"""The idle time of the mesh after which the server does work of its own: none is done between first calls."""

_ATTACH_BYTES = 64 << 10  # for the messages that attach memory files before a command
_MAX_SHOWN = 300  # characters of a line
_OTHERS_S = 0.3  # workers that exit because another exited may be noticed first


class MeshSession:
    """The worker processes of a mesh from their start to their exit, an *epoch*.

    Commands are launched in the order in which they are sent, the same for every worker. A thread that checks which
    programs the workers hold and then sends a command holds `launch_lock` meanwhile.

    Args:
        workers: the processes, in the order of their indices.
        starts: the `Start` message of each worker.
        quarantine: counts the programs that crash workers; quarantined programs are not sent.
    """

    def __init__(self, workers: Sequence[Worker], starts: Sequence[link_pb2.Start], quarantine: Quarantine) -> None:
        self.epoch = secrets.randbits(64) | 1
        self.launch_lock = rlock("the launch lock", LAUNCH_ORDER)
        """Held from the check of what the workers hold until the command is sent; no call continues under it."""
        self.ready: Future[link_pb2.Ready] = Future()
        self.quarantine = quarantine
        self.connections = tuple(WorkerConnection(worker, i) for i, worker in enumerate(workers))
        self._hosts = [worker.host for worker in workers]
        self._pending_commands = PendingCommands(len(workers))
        self._startup_barrier = StartupBarrier(self._hosts)
        self._table: BlockTable | None = None
        self._ids = itertools.count(1)
        self._sequence = 0
        self.ended = False
        """True once a worker is gone."""
        self._first_exited: WorkerConnection | None = None
        self._exit_lock = threading.Lock()  # guards `_first_exited`
        self._exit_event = threading.Event()  # set when the first worker is gone
        self._fault: BaseException | None = None
        self._stop: StopRequest | None = None
        self.is_shut_down = False
        """True once `shut_down` was called."""
        self.batch = Batch(self.connections)
        """Gathers the commands that a thread sends in its body into shared writes to the links."""
        self.device_bytes = 0
        """The memory of all devices as reported by the platform; 0 if unknown."""
        self.newest_call_id = 0
        """The id of the last command sent that has an answer."""
        self.exit_reason: ExitReason | None = None
        """The reason for the exit of the mesh; None until it has exited."""
        for connection, start in zip(self.connections, starts, strict=True):
            connection.notify(link_pb2.FrontEndMessage(start=start))

    @property
    def pid(self) -> int:
        """The process id of the first worker."""
        return self.connections[0].worker.pid

    @property
    def shares_memory(self) -> bool:
        """True if all workers run on the front end's host."""
        return all(connection.worker.data_link is None for connection in self.connections)

    @property
    def idle(self) -> bool:
        """True if no command is pending."""
        return self._pending_commands.idle

    @property
    def idle_s(self) -> float:
        """Time in seconds for which no command has been pending; 0 if one is."""
        return self._pending_commands.idle_s

    def commands(self) -> list[Command]:
        """Returns the pending commands, in the order of sending."""
        return self._pending_commands.commands()

    def command_if_idle(self, message: link_pb2.FrontEndMessage) -> Promise[link_pb2.WorkerMessage] | None:
        """Sends a command like `command` if none is pending or waits to be alone; returns None otherwise."""
        with self.launch_lock:
            try:
                return self.command(message) if self.idle else None
            except IsolatedError:
                return None

    def command(
        self,
        message: link_pb2.FrontEndMessage,
        memory: Iterable[MemoryFile] = (),
        on_gathered: Callable[[int], None] | None = None,
        is_needed: Callable[[], bool] = lambda: True,
        plan: kernel_pb2.Plan | None = None,
        owner: str = "",
    ) -> Promise[link_pb2.WorkerMessage]:
        """Sends a command; the returned future holds the answer or a `CallError`.

        Args:
            message: the command; its call id is set here.
            memory: the memory files that it names; workers map those that they have not mapped yet.
            on_gathered: called with the number of gathered bytes of the results, by the thread that reads the link.
            is_needed: returns whether a caller waits for the answer. A program that no caller waits for is stopped
                after a grace period.
            plan: the placement of the command's arrays on the mesh; None if it moves no array.
            owner: the client that it counts for; empty for the server itself.

        Raises:
            SessionEndedError: a worker is gone and the command was not sent.
            IsolatedError: the command was not sent, and may be when a program that runs alone has ended.
            CallError: PROGRAM_REFUSED, or the worker does not read.
        """
        name, key, kernel = identify(message)
        self.quarantine.check(key, owner)
        command = Command(name, key, kernel, owner, on_gathered, is_needed, plan)
        if name == "prepare":
            message.owner = owner
        self.newest_call_id = message.call_id = command.call_id = next(self._ids)
        if name == "measure" and len(self.connections) > 1:
            message.measure.max_seconds = 0.0  # by their own clocks the processes would run the program unequally often
        with self.launch_lock:
            if self.ended:
                raise SessionEndedError
            if key and (isolation := self.quarantine.isolation).is_active:
                is_new = self.quarantine.is_new(key)
                command.is_alone = isolation.admit(key, owner, self.commands(), is_new=is_new)
            if not self._pending_commands.open(message.call_id, command):
                raise SessionEndedError
            try:
                self._send(message, tuple(memory), plan)
            except Exception:
                # If the command is no longer pending, `run` has failed its answer: a worker may have received it.
                if self._pending_commands.withdraw(message.call_id):
                    raise
        return command.answer

    def detach(self, memory_id: int) -> None:
        """Makes the workers unmap a memory file that no later command names."""
        with self.launch_lock:
            for connection in self.connections:
                connection.detach(memory_id)

    def _send(
        self, message: link_pb2.FrontEndMessage, memory: Sequence[MemoryFile] = (), plan: kernel_pb2.Plan | None = None
    ) -> None:
        """Sends a message to all workers; if only some received it, the mesh is stopped.

        Raises:
            SessionEndedError: a worker is gone, and none was handed the message. If some were, the mesh ends.
            CallError: a worker does not read and none received the message.
        """
        check_held(self.launch_lock)
        message.sequence = self._sequence + 1
        body, sent, more = message.SerializeToString(), 0, self.batch.depth > 0
        for connection in self.connections:
            if not connection.worker.link.has_capacity(len(body) + _ATTACH_BYTES):
                raise CallError(Reason.SERVER_BUSY, "the mesh accepts no commands at present; repeat the call later")
        self._sequence += 1
        try:
            # Each worker adds 0.31 ms of processor time: with 64 hosts the front end makes about 46 launches a second.
            for connection in self.connections:
                connection.send(message, body, memory, plan, self._table, more=more)
                sent += 1
        except LinkFullError:
            self.stop(StopRequest("a worker did not read its link"))
        except LinkClosedError:
            self.ended = True
        except Exception:  # workers that missed this command would see a gap before the next
            self.stop(StopRequest("a command could not be sent"))
            if not sent:
                raise
            structlog.get_logger().exception("a command could not be sent to every worker")
        if not sent:
            raise SessionEndedError

    def notify(self, message: link_pb2.FrontEndMessage) -> None:
        """Sends a command that has no answer; does nothing if the workers are gone."""
        if message.HasField("evict"):
            self._pending_commands.forget(message.evict.key_digest)
        with self.launch_lock:
            try:
                self._send(message)
            except SessionEndedError:
                pass
            except CallError:  # workers that missed an eviction hold other programs than recorded
                self.stop(StopRequest("a worker did not read its link"))

    def run(self) -> ExitReason:
        """Processes the workers' messages until one of them is gone; returns the reason for its exit.

        Every pending command then fails with MESH_RESTARTED, once all processes have exited: until then they may
        write to the call's region.
        """
        try:
            for connection in self.connections[1:]:
                name = f"link-{connection.index}"
                threading.Thread(target=self._read, args=[connection], name=name, daemon=True).start()
            self._read(self.connections[0])
            self._exit_event.wait()
        finally:
            reason = self._close()
        if self._fault is not None:
            raise self._fault
        return reason

    def _read(self, connection: WorkerConnection) -> None:
        """Processes the messages of one worker until it or another is gone."""
        try:
            for messages in connection.batches():
                with self.batch:  # an answer may let another call continue on this thread
                    for message in messages:
                        self._dispatch(connection, message)
        except Exception as error:  # noqa: BLE001  # `run` raises it
            self._fault = self._fault or error
        finally:
            with self._exit_lock:
                is_first = self._first_exited is None
                self._first_exited = self._first_exited or connection
            self.ended = True
            if is_first:
                self._stop_others(connection)
                self._exit_event.set()

    def _stop_others(self, first: WorkerConnection) -> None:
        deadline = time.monotonic() + _OTHERS_S
        for other in self.connections:
            if other is not first:
                other.leave(max(0.0, deadline - time.monotonic()))

    def _dispatch(self, connection: WorkerConnection, message: link_pb2.WorkerMessage) -> None:
        match message.WhichOneof("answer"):
            case "ready":
                self._on_ready(connection, message.ready)
            case "heartbeat":
                connection.heartbeat = message.heartbeat
            case "compiling":
                if (begun := self._pending_commands.find(message.call_id)) is not None:
                    begun.compiling = True
                    begun.in_compiler_process = message.compiling.in_compiler_process
            case "reading":
                if (begun := self._pending_commands.find(message.call_id)) is not None:
                    begun.reading[connection.index] = message.reading.has_begun
            case "gathered":
                self._pending_commands.gathered(message.call_id, connection.index, message.gathered.byte_count)
            case "failure" if not message.call_id:
                self.stop(connection.failed(message.failure))
            case None:
                self.stop(StopRequest("a worker sent a message of an unknown kind"))
            case _:
                self._answer(connection, message)

    def _on_ready(self, connection: WorkerConnection, ready: link_pb2.Ready) -> None:
        try:
            merged = self._startup_barrier.add(connection.index, ready)
        except DisagreementError as error:
            self.stop(StopRequest(str(error)))
            return
        if merged is not None:
            if len(self.connections) > 1 or connection.worker.data_link is not None:
                self._table = BlockTable(merged.devices)
            self.device_bytes = merged.device_bytes
            self.ready.set_result(merged)

    def _answer(self, connection: WorkerConnection, message: link_pb2.WorkerMessage) -> None:
        answer = message if len(self.connections) == 1 else self._merge(connection, message)
        if answer is None or (command := self._pending_commands.answered(answer)) is None:
            return
        quarantine = self.quarantine
        if answer.HasField("failure"):
            if quarantine.isolation.is_active:
                quarantine.isolation.clear(command.key)
            command.answer.set_exception(decode_failure(answer.failure))
        else:
            if command.key:
                quarantine.record_answer(command.key)
            command.answer.set_result(answer)
        if quarantine.isolation.is_awaited and self.idle:
            quarantine.isolation.wake()

    def _merge(self, connection: WorkerConnection, message: link_pb2.WorkerMessage) -> link_pb2.WorkerMessage | None:
        """Records the answer of one of several workers; returns the merged answer if it is the last."""
        collected = self._pending_commands.collect(connection.index, message)
        if collected is None:
            return None
        command, answers = collected
        try:
            merged = merge(answers, self._hosts, command.plan, self._table)
        except DisagreementError as error:
            self.stop(disagreement(str(error), command, error.failure))
            return None
        if merged.HasField("failure"):
            self._evict_partial(answers, merged.failure)
        elif merged.HasField("prepared") and merged.prepared.plan.key_digest in command.failed_programs:
            failure = command.failed_programs[merged.prepared.plan.key_digest]
            return link_pb2.WorkerMessage(call_id=message.call_id, failure=failure)
        return merged

    def _evict_partial(self, answers: Sequence[link_pb2.WorkerMessage], failure: link_pb2.Failure) -> None:
        """Evicts a program that only some workers could compile; earlier calls that compile it fail too."""
        for answer in answers:
            if answer.WhichOneof("answer") == "prepared":
                digest = answer.prepared.plan.key_digest
                with self.launch_lock:
                    for command in self._pending_commands.commands():
                        command.failed_programs[digest] = failure
                    self.notify(link_pb2.FrontEndMessage(evict=link_pb2.Evict(key_digest=digest)))
                return

    def _close(self) -> ExitReason:
        """Terminates the processes, updates the quarantine, and then fails the pending commands."""
        self.ended = True
        lost = self._pending_commands.close()
        reason = self.exit_reason = self._find_exit_reason(lost)
        if reason.is_fault:
            self.quarantine.record_exit(reason.suspects)
        for command in lost:
            error = self._stop.error if self._stop is not None and command is self._stop.culprit else None
            if error is None:
                error = (
                    _shut_down_error()
                    if self.is_shut_down
                    else mesh_restarted(reason.cause, is_suspect=reason.is_suspect(command))
                )
            command.answer.set_exception(error)
        if not self.ready.done():
            self.ready.set_exception(
                CallError(Reason.MESH_NOT_READY, f"the mesh ended before it was ready: {reason.text}{self._said()}")
            )
        self.quarantine.isolation.wake()
        return reason

    def _said(self) -> str:
        """Returns the last line that a worker printed which exited by itself, for messages."""
        first = self._first_exited or self.connections[0]
        line = first.worker.last_output if self._stop is None else ""
        return f"; it said: {shorten(line, _MAX_SHOWN)}" if line else ""

    def _find_exit_reason(self, lost: Sequence[Command]) -> ExitReason:
        """Returns the exit reason of the worker that exited first, unless another's explains it."""
        first = self._first_exited or self.connections[0]
        connections = [first, *(other for other in self.connections if other is not first)]
        reasons = []
        for connection, status in zip(connections, terminate_workers(connections), strict=True):
            stop = self._stop or connection.worker.lost
            pending, oom_killed = suspects(lost, self._pending_commands.proven), connection.worker.out_of_memory
            reason = exit_reason_of(status, stop, pending, oom_killed=oom_killed)
            by_itself = connection.worker.host and stop is None
            text = f"{reason.text}, on host {connection.worker.host}" if by_itself else reason.text
            if connection is first or (not connection.was_killed and (stop is not None or not reason.is_fault)):
                reasons.append(replace(reason, text=text))
        foreign = (
            reason
            for reason in reasons[1:]
            if reason.cause in {ExitCause.KILLED, ExitCause.OUT_OF_MEMORY, ExitCause.UNRESPONSIVE}
        )
        return reasons[0] if self._stop is not None else next(foreign, reasons[0])

    def shut_down(self, timeout_s: float) -> None:
        """Asks the workers to exit after the commands that they have launched, and kills those that do not."""
        self.is_shut_down = True
        self.notify(link_pb2.FrontEndMessage(shutdown=link_pb2.Shutdown()))
        deadline = time.monotonic() + timeout_s
        for connection in self.connections:
            if not self.ready.done() or not connection.worker.wait(max(0.0, deadline - time.monotonic())):
                connection.worker.kill()

    def stop(self, stop: StopRequest) -> None:
        """Kills the workers at once."""
        if not self.ended:
            self._stop = self._stop or stop
            for connection in self.connections:
                connection.worker.kill()


class SessionEndedError(Exception):
    """A worker is gone; the command was not sent and may be sent to the next session."""


def mesh_restarted(cause: ExitCause | None = None, *, is_suspect: bool = False) -> CallError:
    """Returns the error of a call that was pending when the mesh ended.

    Args:
        cause: the cause of the exit; None if it is not known yet.
        is_suspect: whether this call may have caused it.
    """
    why = f" ({cause.description})" if cause else ""
    metadata = ({"ended": cause.value} if cause else {}) | ({"suspect": "true"} if is_suspect else {})
    return CallError(
        Reason.MESH_RESTARTED,
        f"the mesh restarted while it worked on this call{why}, and its result is lost; "
        "the call may be repeated, since kernels change nothing",
        metadata=metadata,
    )


def _shut_down_error() -> CallError:
    return CallError(
        Reason.MESH_RESTARTED,
        "the server shut down while it worked on this call, and its result is lost; the call may be repeated when the "
        "server runs again, since kernels change nothing",
    )
