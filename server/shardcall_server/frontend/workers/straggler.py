"""Whether the workers of a mesh get on together, or wait for one that does not."""

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

_LEAST_SPAN_S = 3.0  # lateness is told once a second
_ENOUGH = 1 - math.exp(-1)  # of the span: what has come together, since time fades, when as much has passed
_STARVED = 0.35  # of the time that counts; with a hundredth of a processor it is half of it, or all
_MOST_AT_ONCE_S = 1.5  # a single pause, of a machine that is moved say, is too little; a long one is silence
_TIMES_THE_BEST = 4  # where a machine is busy, the workers on it are late alike
_AT_WORK = 0.1  # of a processor; one that works may be late, whatever it holds
_IDLE_SPANS = 10  # how many spans time that does not count lasts, until as much has faded
_TOGETHER = frozenset({"execute", "measure", "run_known_answer"})
_UNEVEN = frozenset(
    {"prepare", "compile_known_answer", "start_profile", "stop_profile"}
)  # in which no worker waits for another
_ALL_IN_PLACE = 1 << 63


class StragglerDetector:
    """Looks for a worker that is far behind in what all do: it is as good as gone.

    Args:
        connections: the workers.
        ready: what they say of their devices.
        limit_s: how long one may be behind. It may be as long again as the others needed, if that is longer: a host
            of half the others' speed is no fault.
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
        self._starved = _Starved(connections, max(limit_s, _LEAST_SPAN_S))

    def look(self, commands: Sequence[Command], passed_s: float) -> StopRequest | None:
        """Looks once more; returns why the mesh must end, if it must.

        Args:
            commands: what has not been answered, in the order of sending.
            passed_s: the time since the last look.
        """
        if len(self._connections) == 1 or not self._ready.done() or self._ready.exception() is not None:
            return None
        now = head(commands)
        self._head_s = self._head_s + passed_s if now is self._head else 0.0
        self._head = now
        return self._look_behind(commands, now, passed_s) or self._look_for_starved(now, passed_s)

    def _look_for_starved(self, now: Command | None, passed_s: float) -> StopRequest | None:
        starved, late = self._starved.look(self._taking_part(now) if now is not None else set(), passed_s)
        if now is None or not starved:
            return None
        return StopRequest(f"{_hosts(starved)} got almost no processor (late for {late} of the time) while {now.doing}")

    def _look_behind(self, commands: Iterable[Command], now: Command | None, passed_s: float) -> StopRequest | None:
        """One that has not answered what others have: they were told at the same time, and have as much to do."""
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
        if len(failed) == 1 and behind.kind in _TOGETHER:  # the others wait for it in a collective
            alone = failed_alone(self._connections[failed[0]].worker.host, answers[failed[0]].failure)
            return disagreement(str(alone), behind, alone.failure)
        return StopRequest(f"{_hosts(slow)} was {self._behind_s:.0f} s behind the other hosts in {behind.doing}")

    def _slow(self, command: Command) -> list[WorkerConnection]:
        """Those that have work to do for a command, and have not answered it though others with work have."""
        if not command.answers or command.kind in _UNEVEN:
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
        """How far a worker is with a command; what it does for others says nothing of this one."""
        data_link = connection.worker.data_link
        moved = data_link.moved_for(command.call_id) if data_link is not None else 0
        in_place = command.in_place.get(connection.index, 0.0)
        return (int(in_place) if in_place < math.inf else _ALL_IN_PLACE) + moved


@dataclass
class _Account:
    """How one worker fared of late, in seconds that fade.

    Attributes:
        told: what it said last.
        since_s: how long ago that was, of time that counts.
        looked_s: of time that counts, as much as has not faded.
        late_s: of that, by how much it was late.
        cpu_s: of that, how long it worked.
    """

    told: link_pb2.Heartbeat
    since_s: float = 0.0
    looked_s: float = 0.0
    late_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def late(self) -> float:
        """For which part of the time it was late."""
        return min(1.0, self.late_s / self.looked_s)

    def fade(self, kept: float) -> None:
        """Forgets a part."""
        self.looked_s, self.late_s, self.cpu_s = self.looked_s * kept, self.late_s * kept, self.cpu_s * kept

    def look_away(self, told: link_pb2.Heartbeat) -> None:
        """Lets time pass that does not count."""
        self.told, self.since_s = told, 0.0

    def look(self, told: link_pb2.Heartbeat, passed_s: float) -> None:
        """Counts time in which others waited for this worker."""
        self.looked_s += passed_s
        self.since_s += passed_s
        if told is not self.told:
            self.late_s += min(told.late_seconds - self.told.late_seconds, self.since_s, _MOST_AT_ONCE_S)
            self.cpu_s += told.cpu_seconds - self.told.cpu_seconds
            self.told, self.since_s = told, 0.0


class _Starved:
    """Looks for one that gets no processor, and so keeps the others waiting in whatever all do together.

    Its signs of life are late and the others' are not, though it does not work. It is late for no longer than was
    looked at while commands waited in which it takes part: a mesh without work is nobody's trouble, and a front end
    that was stopped blames nobody.

    Args:
        connections: the workers.
        span_s: how much of that time counts; what is longer ago fades, and slowly so while it does not count.
    """

    def __init__(self, connections: Sequence[WorkerConnection], span_s: float) -> None:
        self._connections = connections
        self._span_s = span_s
        self._accounts = [_Account(connection.heartbeat) for connection in connections]

    def look(self, taking_part: set[int], passed_s: float) -> tuple[list[WorkerConnection], str]:
        """Looks once more; returns who gets no processor, and for which part of the time.

        Args:
            taking_part: who takes part in what the mesh is at.
            passed_s: the time since the last look.
        """
        for i, (account, connection) in enumerate(zip(self._accounts, self._connections, strict=True)):
            if i in taking_part:
                account.fade(math.exp(-passed_s / self._span_s))
                account.look(connection.heartbeat, passed_s)
            else:
                account.fade(math.exp(-passed_s / (_IDLE_SPANS * self._span_s)))
                account.look_away(connection.heartbeat)
        accounts = {i: self._accounts[i] for i in sorted(taking_part)}
        if not all(account.looked_s >= _ENOUGH * self._span_s for account in accounts.values()):
            return [], ""
        least = max(_STARVED, _TIMES_THE_BEST * min((account.late for account in accounts.values()), default=1.0))
        starved = [i for i, a in accounts.items() if a.late > least and a.cpu_s < _AT_WORK * a.looked_s]
        return [self._connections[i] for i in starved], " and ".join(f"{accounts[i].late:.0%}" for i in starved)


def _hosts(connections: Iterable[WorkerConnection]) -> str:
    return " and ".join(connection.worker.host for connection in connections)
