"""Pending commands of a session, and the programs that its workers hold."""

from __future__ import annotations

import math
import time

from shardcall_core.locks import lock
from shardcall_server.frontend.workers.command import Command
from shardcall_worker.v1 import link_pb2


class PendingCommands:
    """The pending commands of one session, in the order of sending.

    Args:
        workers: number of workers that answer each command.
    """

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self._lock = lock("the lock of the pending commands")  # guards all of these; no answer is set under it
        self._open: dict[int, Command] = {}
        self._kernels: dict[str, str] = {}
        self._proven: set[str] = set()
        self._closed = False
        self._answered_at = time.monotonic()

    @property
    def idle_s(self) -> float:
        """Time in seconds for which no command has been pending; 0 if one is."""
        return 0.0 if self._open else time.monotonic() - self._answered_at

    @property
    def idle(self) -> bool:
        """True if no command is pending."""
        return not self._open

    def open(self, call_id: int, command: Command) -> bool:
        """Adds a command; returns False if the table is closed."""
        with self._lock:
            if self._closed:
                return False
            command.kernel = command.kernel or self._kernels.get(command.key, "")
            self._open[call_id] = command
            return True

    def withdraw(self, call_id: int) -> bool:
        """Removes a command that was not sent; returns False if it has failed already."""
        with self._lock:
            return self._open.pop(call_id, None) is not None

    def find(self, call_id: int) -> Command | None:
        """Returns a pending command."""
        return self._open.get(call_id)

    def collect(
        self, worker: int, message: link_pb2.WorkerMessage
    ) -> tuple[Command, list[link_pb2.WorkerMessage]] | None:
        """Records the answer of one worker; returns the command and all answers, in order, if it is the last."""
        with self._lock:
            command = self._open.get(message.call_id)
            if command is None:
                return None
            command.answers[worker] = message
            if not message.HasField("failure"):  # then its result buffers hold data of other calls
                command.gathered_bytes[worker] = math.inf
            all_there = len(command.answers) == self._workers
        self._report_gathered(command)
        return (command, [command.answers[i] for i in range(self._workers)]) if all_there else None

    def gathered(self, call_id: int, worker: int, byte_count: int) -> None:
        """Records the number of bytes of a command's results that one worker has gathered."""
        command = self._open.get(call_id)
        if command is not None:
            command.gathered_bytes[worker] = byte_count
            self._report_gathered(command)

    def _report_gathered(self, command: Command) -> None:
        counts = list(command.gathered_bytes.values())
        if command.on_gathered is not None and len(counts) == self._workers and min(counts) < math.inf:
            command.on_gathered(int(min(counts)))

    def answered(self, message: link_pb2.WorkerMessage) -> Command | None:
        """Removes the command that a message answers, and records the programs that the message names."""
        with self._lock:
            command = self._open.pop(message.call_id, None)
            if command is None:
                return None
            self._answered_at = time.monotonic()
            match message.WhichOneof("answer"):
                case "prepared":
                    plan = message.prepared.plan
                    self._kernels[plan.key_digest] = plan.kernel
                case "executed" if command.key in self._kernels:
                    self._proven.add(command.key)
            return command

    def forget(self, digest: str) -> None:
        """Removes an evicted program."""
        with self._lock:
            self._kernels.pop(digest, None)
            self._proven.discard(digest)

    def commands(self) -> list[Command]:
        """Returns the pending commands, in the order of sending."""
        with self._lock:
            return list(self._open.values())

    @property
    def proven(self) -> frozenset[str]:
        """The keys of programs that have completed at least once."""
        with self._lock:
            return frozenset(self._proven)

    def close(self) -> list[Command]:
        """Accepts no more commands; returns those that are pending."""
        with self._lock:
            self._closed = True
            lost, self._open = self._open, {}
            return list(lost.values())
