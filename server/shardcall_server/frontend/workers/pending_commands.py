"""What the worker was asked and has not answered, and what the programs are that it holds."""

from __future__ import annotations

import math
import threading
import time

from shardcall_server.frontend.workers.command import Command
from shardcall_worker.v1 import link_pb2


class PendingCommands:
    """The open commands of one session, in the order of their sending.

    Args:
        workers: how many answer each.
    """

    def __init__(self, workers: int = 1) -> None:
        self._workers = workers
        self._lock = threading.Lock()
        self._open: dict[int, Command] = {}
        self._kernels: dict[str, str] = {}
        self._proven: set[str] = set()
        self._closed = False
        self._answered_at = time.monotonic()

    @property
    def idle_s(self) -> float:
        """For how long every command has had its answer, in seconds; 0 where one has not."""
        return 0.0 if self._open else time.monotonic() - self._answered_at

    @property
    def idle(self) -> bool:
        """Whether every command has had its answer."""
        return not self._open

    def open(self, call_id: int, command: Command) -> bool:
        """Enters a command, unless the table is closed; returns whether it did."""
        with self._lock:
            if self._closed:
                return False
            command.kernel = command.kernel or self._kernels.get(command.key, "")
            self._open[call_id] = command
            return True

    def withdraw(self, call_id: int) -> bool:
        """Strikes a command that was not sent; False if it has been failed already."""
        with self._lock:
            return self._open.pop(call_id, None) is not None

    def find(self, call_id: int) -> Command | None:
        """An open command."""
        return self._open.get(call_id)

    def collect(
        self, worker: int, message: link_pb2.WorkerMessage
    ) -> tuple[Command, list[link_pb2.WorkerMessage]] | None:
        """Notes one worker's answer; returns the command and all answers in their order, when it is the last."""
        with self._lock:
            command = self._open.get(message.call_id)
            if command is None:
                return None
            command.answers[worker] = message
            if not message.HasField("failure"):  # else what lies in its places is another call's
                command.in_place[worker] = math.inf
            all_there = len(command.answers) == self._workers
        self._tell_gathered(command)
        return (command, [command.answers[i] for i in range(self._workers)]) if all_there else None

    def gathered(self, call_id: int, worker: int, byte_count: int) -> None:
        """Notes how many bytes of a command's results are in place, as far as they come from one worker."""
        command = self._open.get(call_id)
        if command is not None:
            command.in_place[worker] = byte_count
            self._tell_gathered(command)

    def _tell_gathered(self, command: Command) -> None:
        in_place = list(command.in_place.values())
        if command.on_gathered is not None and len(in_place) == self._workers and min(in_place) < math.inf:
            command.on_gathered(int(min(in_place)))

    def answered(self, message: link_pb2.WorkerMessage) -> Command | None:
        """Strikes the command that a message answers, and keeps what it tells of programs."""
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
        """Forgets a program that the worker was told to forget."""
        with self._lock:
            self._kernels.pop(digest, None)
            self._proven.discard(digest)

    def commands(self) -> list[Command]:
        """The open commands, in the order of their sending."""
        with self._lock:
            return list(self._open.values())

    @property
    def proven(self) -> frozenset[str]:
        """The programs that have run to their end."""
        with self._lock:
            return frozenset(self._proven)

    def close(self) -> list[Command]:
        """Takes no more commands; returns those that will not be answered."""
        with self._lock:
            self._closed = True
            lost, self._open = self._open, {}
            return list(lost.values())
