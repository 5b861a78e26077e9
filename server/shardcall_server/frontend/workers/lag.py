"""Whether the workers of a mesh get on together, or wait for one that does not."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from shardcall_server.frontend.workers.command import Command, head
from shardcall_server.frontend.workers.ends import Stop
from shardcall_server.frontend.workers.member import Member
from shardcall_worker.v1 import link_pb2

_LEAST_STARVED_S = 3.0  # lateness is told once a second
_STARVED = 0.5  # of the time
_TIMES_THE_BEST = 4  # where a machine is busy, the workers on it are late alike
_AT_WORK = 0.1  # of a processor; one that works may be late, whatever it holds
_ALL_IN_PLACE = 1 << 63


class Lag:
    """Looks for a worker that is far behind in what all do: it is as good as gone.

    Args:
        members: the workers.
        ready: what they say of their devices.
        limit_s: how long one may be behind. It may be as long again as the others needed, if that is longer: a host
            of half the others' speed is no fault.
    """

    def __init__(self, members: Sequence[Member], ready: Future[link_pb2.Ready], limit_s: float) -> None:
        self._members = members
        self._ready = ready
        self._limit_s = limit_s
        self._behind: Command | None = None
        self._progress: tuple[int, ...] = ()
        self._patience_s = self._behind_s = 0.0
        self._head: Command | None = None
        self._head_s = 0.0
        self._starved = _Starved(members, max(limit_s, _LEAST_STARVED_S))

    def look(self, commands: Sequence[Command], passed_s: float) -> Stop | None:
        """Looks once more; returns why the mesh must end, if it must.

        Args:
            commands: what has not been answered, in the order of sending.
            passed_s: the time since the last look.
        """
        if len(self._members) == 1 or not self._ready.done() or self._ready.exception() is not None:
            return None
        now = head(commands)
        self._head_s = self._head_s + passed_s if now is self._head else 0.0
        self._head = now
        return self._look_behind(commands, now, passed_s) or self._starved.look(now, passed_s)

    def _look_behind(self, commands: Iterable[Command], now: Command | None, passed_s: float) -> Stop | None:
        """One that has not answered what others have: they were told at the same time, and have as much to do."""
        behind, slow = next(((command, slow) for command in commands if (slow := self._slow(command))), (None, []))
        progress = tuple(self._progress_of(behind, member) for member in slow) if behind is not None else ()
        if behind is None or behind is not self._behind or progress != self._progress:
            if behind is not self._behind:
                self._patience_s = max(self._limit_s, self._head_s if behind is now else 0.0)
            self._behind, self._progress, self._behind_s = behind, progress, 0.0
            return None
        self._behind_s += passed_s
        if self._behind_s <= self._patience_s:
            return None
        return Stop(f"{_hosts(slow)} was {self._behind_s:.0f} s behind the other hosts in {behind.doing}")

    def _slow(self, command: Command) -> list[Member]:
        """Those that have work to do for a command, and have not answered it though others with work have."""
        if not command.answers or command.kind == "prepare":
            return []
        taking_part = self._taking_part(command)
        if not taking_part & command.answers.keys():
            return []
        return [member for member in self._members if member.index in taking_part - command.answers.keys()]

    def _taking_part(self, command: Command) -> set[int]:
        if command.plan is None or not command.plan.mesh.device_ids:
            return {member.index for member in self._members}
        ids = set(command.plan.mesh.device_ids)
        return {device.process_index for device in self._ready.result().devices if device.id in ids}

    @staticmethod
    def _progress_of(command: Command, member: Member) -> int:
        """How far a worker is with a command; what it does for others says nothing of this one."""
        data_link = member.worker.data_link
        moved = data_link.moved_for(command.call_id) if data_link is not None else 0
        in_place = command.in_place.get(member.index, 0.0)
        return (int(in_place) if in_place < math.inf else _ALL_IN_PLACE) + moved


class _Starved:
    """Looks for one that gets no processor, and so keeps the others waiting in whatever all do together.

    Its signs of life are late and the others' are not, though it does not work. Only time in which commands wait
    counts: a mesh that has nothing to do is nobody's trouble.

    Args:
        members: the workers.
        limit_s: how long that may be so.
    """

    def __init__(self, members: Sequence[Member], limit_s: float) -> None:
        self._members = members
        self._limit_s = limit_s
        self._told = [member.told for member in members]
        self._looks: deque[tuple[float, list[tuple[float, float]]]] = deque()
        self._span_s = 0.0

    def look(self, now: Command | None, passed_s: float) -> Stop | None:
        """Looks once more; returns why the mesh must end, if it must."""
        before, self._told = self._told, [member.told for member in self._members]
        if now is None:
            return None
        grown = [
            (after.late_seconds - told.late_seconds, after.cpu_seconds - told.cpu_seconds)
            for after, told in zip(self._told, before, strict=True)
        ]
        self._looks.append((passed_s, grown))
        self._span_s += passed_s
        if self._span_s < self._limit_s:
            return None
        starved = self._find()
        while self._span_s >= self._limit_s:
            self._span_s -= self._looks.popleft()[0]
        if not starved:
            return None
        return Stop(f"{_hosts(starved)} got almost no processor for {self._limit_s:.0f} s, and all wait in {now.doing}")

    def _find(self) -> list[Member]:
        late_s, cpu_s = (
            [sum(grown[member.index][i] for _, grown in self._looks) for member in self._members] for i in (0, 1)
        )
        least_s = max(_STARVED * self._span_s, _TIMES_THE_BEST * min(late_s))
        at_work_s = _AT_WORK * self._span_s
        return [m for m in self._members if late_s[m.index] > least_s and cpu_s[m.index] < at_work_s]


def _hosts(members: Iterable[Member]) -> str:
    return " and ".join(member.worker.host for member in members)
