"""Detection of stragglers and of CPU starvation among the workers of a mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from shardcall_server.frontend.workers.command import Command, head
from shardcall_server.frontend.workers.exit_reason import StopRequest, disagreement
from shardcall_server.frontend.workers.merging import failed_alone
from shardcall_server.frontend.workers.worker_connection import WorkerConnection
from shardcall_worker.v1 import link_pb2

_MIN_SPAN_S = 3.0  # heartbeats report lateness once a second
_ENOUGH = 1 - math.exp(-1)  # of the span: the decayed sum of as much time
_STARVATION_SHARE = 0.35  # of the counted time; with a hundredth of a CPU, lateness is half of it or more
_MAX_PAUSE_S = 1.5  # a single pause, such as a live migration, is too little; a long one counts as silence
_MIN_RATIO_TO_BEST = 4  # on a busy machine all workers are equally late
_BUSY_SHARE = 0.1  # of a CPU: a worker that computes may be late
_IDLE_SPANS = 10  # time constant of the decay, in spans, while no time is counted
_COLLECTIVE_COMMANDS = frozenset({"execute", "measure", "run_known_answer"})
_INDEPENDENT_COMMANDS = frozenset(
    {
        *("prepare", "compile_known_answer", "start_profile", "stop_profile"),
        *("save_array", "load_array", "write_arrays", "declare_arrays"),
    }
)  # no worker waits for another in these
_ALL_GATHERED = 1 << 63


class StragglerDetector:
    """Detects workers that are far behind the others in a command, or get almost no CPU time.

    Args:
        connections: the connections to all workers.
        ready: the merged `Ready` message, with the devices of each process.
        limit_s: the time that a worker may be behind without progress, in seconds; extended to the time that the
            others needed for the command, if that is longer.
    """

    def __init__(self, connections: Sequence[WorkerConnection], ready: Future[link_pb2.Ready], limit_s: float) -> None:
        self._connections = connections
        self._ready = ready
        self._limit_s = limit_s
        self._behind: Command | None = None
        self._progress: tuple[int, ...] = ()
        self._patience_s = self._behind_s = 0.0
        self._head: Command | None = None
        self._head_s = 0.0
        self._cpu_starvation = _CpuStarvationDetector(connections, max(limit_s, _MIN_SPAN_S))

    def check(self, commands: Sequence[Command], passed_s: float) -> StopRequest | None:
        """Checks once; returns the request to stop the mesh if a worker holds it up.

        Args:
            commands: the pending commands, in the order of sending.
            passed_s: the time since the last check, in seconds.
        """
        if len(self._connections) == 1 or not self._ready.done() or self._ready.exception() is not None:
            return None
        now = head(commands)
        self._head_s = self._head_s + passed_s if now is self._head else 0.0
        self._head = now
        return self._check_stragglers(commands, now, passed_s) or self._check_cpu_starvation(now, passed_s)

    def _check_cpu_starvation(self, now: Command | None, passed_s: float) -> StopRequest | None:
        without_cpu, late = self._cpu_starvation.check(self._taking_part(now) if now is not None else set(), passed_s)
        if now is None or not without_cpu:
            return None
        return StopRequest(
            f"{_hosts(without_cpu)} got almost no CPU time (late for {late} of the time) while {now.doing}"
        )

    def _check_stragglers(
        self, commands: Iterable[Command], now: Command | None, passed_s: float
    ) -> StopRequest | None:
        """Checks for a command that some workers have not answered for too long after the others."""
        if any(command.reads_file for command in commands):  # the disk of one holds up what comes behind
            self._behind = None
            return None
        behind, slow = next(((command, slow) for command in commands if (slow := self._slow(command))), (None, []))
        progress = tuple(self._progress_of(behind, connection) for connection in slow) if behind is not None else ()
        if behind is None or behind is not self._behind or progress != self._progress:
            if behind is not self._behind:
                self._patience_s = max(self._limit_s, self._head_s if behind is now else 0.0)
            self._behind, self._progress, self._behind_s = behind, progress, 0.0
            return None
        self._behind_s += passed_s
        if self._behind_s <= self._patience_s:
            return None
        answers = dict(behind.answers)
        failed = [index for index, answer in answers.items() if answer.HasField("failure")]
        if len(failed) == 1 and _is_collective(behind):  # the others wait for it
            alone = failed_alone(self._connections[failed[0]].worker.host, answers[failed[0]].failure)
            return disagreement(str(alone), behind, alone.failure)
        return StopRequest(f"{_hosts(slow)} was {self._behind_s:.0f} s behind the other hosts in {behind.doing}")

    def _slow(self, command: Command) -> list[WorkerConnection]:
        """Returns the workers that take part in a command and have not answered it, if another has."""
        if not command.answers or (command.name in _INDEPENDENT_COMMANDS and not command.reading):
            return []
        taking_part = self._taking_part(command)
        if not taking_part & command.answers.keys():
            return []
        return [
            connection for connection in self._connections if connection.index in taking_part - command.answers.keys()
        ]

    def _taking_part(self, command: Command) -> set[int]:
        if command.plan is None or not command.plan.mesh.device_ids:
            return {connection.index for connection in self._connections}
        ids = set(command.plan.mesh.device_ids)
        return {device.process_index for device in self._ready.result().devices if device.id in ids}

    @staticmethod
    def _progress_of(command: Command, connection: WorkerConnection) -> int:
        """Returns the progress of a worker in one command."""
        data_link = connection.worker.data_link
        moved = data_link.moved_for(command.call_id) if data_link is not None else 0
        gathered = command.gathered_bytes.get(connection.index, 0.0)
        return (int(gathered) if gathered < math.inf else _ALL_GATHERED) + moved


def _is_collective(command: Command) -> bool:
    """Returns whether a worker waits for the others: all inform each other whether they could read an array's file."""
    return command.name in _COLLECTIVE_COMMANDS or bool(command.reading)


@dataclass
class _CpuAccount:
    """Recent lateness and CPU time of one worker, in seconds that decay exponentially.

    Attributes:
        heartbeat: the last heartbeat.
        since_s: counted time since that heartbeat.
        counted_s: time in which others waited for this worker.
        late_s: the lateness of the heartbeat thread in that time.
        cpu_s: the CPU time used in that time.
    """

    heartbeat: link_pb2.Heartbeat
    since_s: float = 0.0
    counted_s: float = 0.0
    late_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def late(self) -> float:
        """Share of the counted time by which the worker was late."""
        return min(1.0, self.late_s / self.counted_s)

    def decay(self, factor: float) -> None:
        """Multiplies all sums by a factor."""
        self.counted_s, self.late_s, self.cpu_s = self.counted_s * factor, self.late_s * factor, self.cpu_s * factor

    def skip(self, heartbeat: link_pb2.Heartbeat) -> None:
        """Passes over time in which no other worker waited."""
        self.heartbeat, self.since_s = heartbeat, 0.0

    def count(self, heartbeat: link_pb2.Heartbeat, passed_s: float) -> None:
        """Counts time in which others waited for this worker."""
        self.counted_s += passed_s
        self.since_s += passed_s
        if heartbeat is not self.heartbeat:
            self.late_s += min(heartbeat.late_seconds - self.heartbeat.late_seconds, self.since_s, _MAX_PAUSE_S)
            self.cpu_s += heartbeat.cpu_seconds - self.heartbeat.cpu_seconds
            self.heartbeat, self.since_s = heartbeat, 0.0


class _CpuStarvationDetector:
    """Detects a worker that gets almost no CPU time and so holds up the others in collectives.

    Its heartbeats are late, those of the others are not, and it uses little CPU time. Lateness counts only up to the
    time that was checked while commands in which the worker takes part were pending: an idle mesh has no starvation,
    and neither has one whose front end was suspended.

    Args:
        connections: the connections to all workers.
        span_s: the time constant of the decay, in seconds; it is longer while no time is counted.
    """

    def __init__(self, connections: Sequence[WorkerConnection], span_s: float) -> None:
        self._connections = connections
        self._span_s = span_s
        self._accounts = [_CpuAccount(connection.heartbeat) for connection in connections]

    def check(self, taking_part: set[int], passed_s: float) -> tuple[list[WorkerConnection], str]:
        """Checks once; returns the workers without CPU time, and their lateness as text.

        Args:
            taking_part: indices of the workers that take part in the executing command.
            passed_s: the time since the last check, in seconds.
        """
        for i, (account, connection) in enumerate(zip(self._accounts, self._connections, strict=True)):
            if i in taking_part:
                account.decay(math.exp(-passed_s / self._span_s))
                account.count(connection.heartbeat, passed_s)
            else:
                account.decay(math.exp(-passed_s / (_IDLE_SPANS * self._span_s)))
                account.skip(connection.heartbeat)
        accounts = {i: self._accounts[i] for i in sorted(taking_part)}
        if not all(account.counted_s >= _ENOUGH * self._span_s for account in accounts.values()):
            return [], ""
        threshold = max(
            _STARVATION_SHARE, _MIN_RATIO_TO_BEST * min((account.late for account in accounts.values()), default=1.0)
        )
        without_cpu = [i for i, a in accounts.items() if a.late > threshold and a.cpu_s < _BUSY_SHARE * a.counted_s]
        return [self._connections[i] for i in without_cpu], " and ".join(f"{accounts[i].late:.0%}" for i in without_cpu)


def _hosts(connections: Iterable[WorkerConnection]) -> str:
    return " and ".join(connection.worker.host for connection in connections)
