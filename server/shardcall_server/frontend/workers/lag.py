"""Whether the workers of a mesh get on together, or wait for one that does not."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from shardcall_server.frontend.workers.command import Command, head
from shardcall_server.frontend.workers.ends import Stop
from shardcall_server.frontend.workers.member import Member
from shardcall_worker.v1 import link_pb2

_AT_WORK = 0.02  # of one processor: signs of life alone take far less
_QUICK_S = 1.0
_LATE_S = 1.6  # a sign of life comes every second, and is looked for four times as often
_LEAST_STILL_S = 3.0  # what processor time was used is told once a second
_PROCESSORS = "cpu"
_ALL_IN_PLACE = 1 << 63
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
        self._head_s = self._still_s = 0.0
        self._done = 0
        self._ticks = [0] * len(members)
        self._heard: dict[int, tuple[int, float]] = {}
        self._late: set[int] = set()

    def look(self, commands: Sequence[Command], passed_s: float) -> Stop | None:
        """Looks once more; returns why the mesh must end, if it must.

        Args:
            commands: what has not been answered, in the order of sending.
            passed_s: the time since the last look.
        """
        if len(self._members) == 1 or not self._ready.done() or self._ready.exception() is not None:
            return None
        now = head(commands)
        took_s, self._head_s = self._head_s, self._head_s + passed_s if now is self._head else 0.0
        stop = self._look_behind(commands, now, passed_s) or self._look_still(now, passed_s, took_s)
        self._head = now
        return stop

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
        hosts = " and ".join(member.worker.host for member in slow)
        return Stop(f"{hosts} was {self._behind_s:.0f} s behind the other hosts in {behind.doing}")

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

    def _look_still(self, now: Command | None, passed_s: float, took_s: float) -> Stop | None:
        """One that gets no processor keeps the others waiting in a collective: nobody answers, and nobody works.

        Its signs of life are late, and so tell it from hosts that wait for a slow network. A program on other devices
        than processors shows nothing of its work here. What one program after the other stood still is added up.
        """
        late = self._look_for_late(passed_s)
        ticks = [member.worker.cpu_ticks for member in self._members]
        done = sum(self._progress_of(now, member) for member in self._members) if now is not None else 0
        limit_s = max(self._limit_s, _LEAST_STILL_S)
        enough = _AT_WORK * limit_s * _TICKS_PER_S
        worked = any(after - before > enough for after, before in zip(ticks, self._ticks, strict=True))
        is_next = now is not self._head and took_s >= _QUICK_S
        got_on = not is_next and (now is not self._head or done != self._done)
        if now is None or worked or got_on or self._ready.result().platform != _PROCESSORS:
            self._done, self._ticks, self._still_s = done, ticks, 0.0
            self._late.clear()
            return None
        self._done = done
        self._still_s += 0.0 if is_next else passed_s
        self._late |= late
        if self._still_s <= limit_s or not self._late:
            return None
        hosts = " and ".join(member.worker.host for member in self._members if member.index in self._late)
        return Stop(f"{hosts} got almost no processor for {self._still_s:.0f} s, and all wait in {now.doing}")

    def _look_for_late(self, passed_s: float) -> set[int]:
        """Those whose sign of life, due every second, is late."""
        for member in self._members:
            heard, quiet_s = self._heard.get(member.index, (-1, 0.0))
            self._heard[member.index] = member.heard, quiet_s + passed_s if heard == member.heard else 0.0
        return {index for index, (_, quiet_s) in self._heard.items() if quiet_s > _LATE_S}
