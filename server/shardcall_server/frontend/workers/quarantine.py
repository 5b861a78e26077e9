"""Quarantine of programs that end the mesh, and of what their owners run next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.workers.command import Command
from shardcall_server.frontend.workers.isolation import Isolation
from shardcall_server.frontend.workers.probation import Probation

_MAX_DEATHS = 3
_MAX_KEYS = 1024
_MAX_ANSWERED = 16384


class Quarantine:
    """Counts by key how often a program ended the mesh, and refuses it from the third time on.

    Only a command that was alone is counted, for its program and for its owner. Those that were together run alone
    from then on. The counts last until the server exits: a restart of the mesh changes no program.

    Attributes:
        isolation: the commands that run alone.
        probation: the owners of programs that ended several meshes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the next two, which are also read without it
        self._deaths: OrderedDict[str, int] = OrderedDict()
        self._answered: dict[str, None] = {}  # keys of commands; the oldest first
        self.isolation = Isolation()
        self.probation = Probation()

    def record_exit(self, suspects: Sequence[Command]) -> None:
        """Records an exit of the mesh that a program has caused.

        Args:
            suspects: the commands that may have caused it.
        """
        keys = {command.key for command in suspects if command.key}
        if len(keys) > 1:
            self.isolation.suspect([command for command in suspects if command.key])
        for command in suspects:
            if keys == {command.key}:
                self.count(command.key)
                if command.owner:
                    self.probation.count(command.owner)
                return

    def record_answer(self, key: str) -> None:
        """Records that the mesh has carried out a command."""
        if key not in self._answered:
            with self._lock:
                self._answered[key] = None
                if len(self._answered) > _MAX_ANSWERED:
                    del self._answered[next(iter(self._answered))]
        if self.isolation.is_active:
            self.isolation.clear(key)

    def is_new(self, key: str) -> bool:
        """Returns whether the mesh has not carried out a command of this key."""
        return key not in self._answered

    def count(self, key: str) -> None:
        """Adds one to the count of a key; of too many keys, the least recently used one is dropped."""
        with self._lock:
            self._deaths[key] = self._deaths.get(key, 0) + 1
            self._deaths.move_to_end(key)
            self._answered.pop(key, None)
            if len(self._deaths) > _MAX_KEYS:
                self._deaths.popitem(last=False)

    def check(self, key: str, owner: str = "") -> None:
        """Refuses a quarantined program, and a new program of an owner on probation.

        Args:
            key: the key of a command; empty for one of no program.
            owner: the client that it counts for; empty for the server itself.

        Raises:
            CallError: PROGRAM_REFUSED.
        """
        if self._deaths.get(key, 0) < _MAX_DEATHS:
            if key not in self._answered and key:
                self.probation.check(owner)
            return
        with self._lock:
            if key in self._deaths:
                self._deaths.move_to_end(key)
        raise CallError(
            Reason.PROGRAM_REFUSED,
            f"the mesh ended {_MAX_DEATHS} times because of this program, which is not run again until the server is "
            "restarted; name another strategy, change the shapes or the mesh, and inform the server's administrator",
            metadata={"deaths": str(_MAX_DEATHS)},
        )
