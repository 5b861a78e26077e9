"""Isolation of commands that may have ended a mesh: each runs alone, so that its outcome is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.workers.command import Command

_SUSPECTED_S = 600.0
_RESERVED_S = 2.0  # for a command that waits to be alone; it tries again several times a second
_MAX_KEYS = 1024


class IsolatedError(Exception):
    """A command was not sent: it or another one must be alone.

    Attributes:
        changed: set when the command may be tried again.
    """

    def __init__(self, changed: Promise[None]) -> None:
        super().__init__("a program runs alone at present")
        self.changed = changed


class Isolation:
    """Commands that were together when a mesh ended, and their owners.

    For ten minutes, such a command is sent only while no other command of a program is pending, and no other is sent
    while it is. So are the new programs of its owner, who could end every mesh by another program. A command that was
    answered is not suspected any more.

    Args:
        clock: a monotonic clock, in seconds.

    Attributes:
        is_active: whether anything is suspected; read without the lock.
        is_awaited: whether a command waits to be tried again; read without the lock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards all of these; no promise is set under it
        self._keys: dict[str, float] = {}  # when the suspicion ends
        self._owners: dict[str, float] = {}
        self._reserved: tuple[str, float] = ("", 0.0)  # the next command that is alone, and when that lapses
        self._changed: Promise[None] = Promise()
        self.is_awaited = False
        self.is_active = False

    def suspect(self, commands: Sequence[Command]) -> None:
        """Suspects commands that were together, any of which may have ended the mesh."""
        expiry = self._clock() + _SUSPECTED_S
        with self._lock:
            for command in commands:
                if len(self._keys) < _MAX_KEYS:
                    self._keys[command.key] = expiry
                if command.owner:
                    self._owners[command.owner] = expiry
            self.is_active = True

    def clear(self, key: str) -> None:
        """Ends the suspicion of a command that was answered."""
        with self._lock:
            self._keys.pop(key, None)

    def admit(self, key: str, owner: str, pending: Collection[Command], *, is_new: bool) -> bool:
        """Returns whether a command is to be alone; it is sent at once.

        Args:
            key: the key of the command.
            owner: the client that it counts for; empty for the server itself.
            pending: the pending commands.
            is_new: whether no command of this key has been answered.

        Raises:
            IsolatedError: the command may not be sent now.
        """
        others = [command for command in pending if command.key]
        now = self._clock()
        with self._lock:
            self._remove_expired(now)
            is_reserved = self._reserved[0] not in ("", key) and now < self._reserved[1]
            if key in self._keys or (is_new and owner in self._owners):
                if not is_reserved and not others:
                    self._reserved = "", 0.0
                    return True
                if not is_reserved:
                    self._reserved = key, now + _RESERVED_S
            elif not is_reserved and not any(command.is_alone for command in others):
                return False
            self.is_awaited = True
            raise IsolatedError(self._changed)

    def wake(self) -> None:
        """Has commands that were not sent tried again, on this thread."""
        if not self.is_awaited:
            return
        with self._lock:
            changed, self._changed, self.is_awaited = self._changed, Promise(), False
        changed.set_result(None)

    def _remove_expired(self, now: float) -> None:
        for suspected in (self._keys, self._owners):
            for name in [name for name, expiry in suspected.items() if expiry <= now]:
                del suspected[name]
        self.is_active = bool(self._keys or self._owners)
