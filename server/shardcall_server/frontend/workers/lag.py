"""Whether the workers of a mesh get on together, or wait for one that does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from shardcall_server.frontend.workers.command import Command, head
from shardcall_server.frontend.workers.ends import Stop
from shardcall_server.frontend.workers.member import Member
from shardcall_worker.v1 import link_pb2

_LEAST_SPAN_S = 3.0  # lateness is told once a second
_STARVED = 0.5  # of the time that counts
_ENOUGH = 1 - math.exp(-1)  # of it: what has come together after as much
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
        self._starved = _Starved(members, max(limit_s, _LEAST_SPAN_S))

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
        return self._look_behind(commands, now, passed_s) or self._look_for_starved(now, passed_s)

    def _look_for_starved(self, now: Command | None, passed_s: float) -> Stop | None:
        taking_part = self._taking_part(now) if now is not None else set()
        starved = self._starved.look(now, taking_part, passed_s)
        if now is None or not starved:
            return None
        return Stop(f"{' and '.join(starved)} that {now.doing} waited, and got almost no processor")

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

    Its signs of life are late and the others' are not, though it does not work. It is late for no longer than was
    looked at while commands waited: a mesh without work is nobody's trouble, and a front end that was stopped blames
    nobody.

    Args:
        members: the workers.
        span_s: how much of that time counts; what is longer ago fades.
    """

    def __init__(self, members: Sequence[Member], span_s: float) -> None:
        self._members = members
        self._span_s = span_s
        self._looked_s = 0.0
        self._late_s = [0.0] * len(members)
        self._cpu_s = [0.0] * len(members)
        self._forget()

    def _forget(self) -> None:
        self._told = [member.told for member in self._members]
        self._since_s = [0.0] * len(self._members)  # it was heard, of time that counts

    def look(self, now: Command | None, taking_part: set[int], passed_s: float) -> list[str]:
        """Looks once more; returns who gets no processor, in words.

        Args:
            now: what the mesh is at.
            taking_part: whose devices that is for.
            passed_s: the time since the last look.
        """
        if now is None:
            self._forget()
            return []
        kept = math.exp(-passed_s / self._span_s)
        self._looked_s = self._looked_s * kept + passed_s
        for i in range(len(self._members)):
            late_s, cpu_s = self._hear(i, passed_s)
            self._late_s[i] = self._late_s[i] * kept + late_s
            self._cpu_s[i] = self._cpu_s[i] * kept + cpu_s
        return self._find(taking_part) if self._looked_s >= _ENOUGH * self._span_s else []

    def _hear(self, i: int, passed_s: float) -> tuple[float, float]:
        """By how much a worker was late since it was heard before, and how long it worked."""
        self._since_s[i] += passed_s
        before, after = self._told[i], self._members[i].told
        if after is before:
            return 0.0, 0.0
        late_s = min(after.late_seconds - before.late_seconds, self._since_s[i])
        self._told[i], self._since_s[i] = after, 0.0
        return late_s, after.cpu_seconds - before.cpu_seconds

    def _find(self, taking_part: set[int]) -> list[str]:
        late = [seconds / self._looked_s for seconds in self._late_s]
        least = max(_STARVED, _TIMES_THE_BEST * min(late))
        starved = [i for i in taking_part if late[i] > least and self._cpu_s[i] < _AT_WORK * self._looked_s]
        return [f"{self._members[i].worker.host} was late for {late[i]:.0%} of the time" for i in sorted(starved)]


def _hosts(members: Iterable[Member]) -> str:
    return " and ".join(member.worker.host for member in members)
