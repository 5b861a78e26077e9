"""Quarantine of programs that crash the workers."""

from __future__ import annotations

import threading
from collections import OrderedDict

from shardcall_core.call_error import CallError, Reason

_MAX_DEATHS = 3
_MAX_KEYS = 1024


class Quarantine:
    """Counts by key how often a program ended the mesh, and refuses it from the third time on.

    The counts last until the server exits: a restart of the mesh changes no program.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the counts, which are also read without it
        self._deaths: OrderedDict[str, int] = OrderedDict()

    def count(self, key: str) -> None:
        """Adds one to the count of a key; of too many keys, the least recently used one is dropped."""
        with self._lock:
            self._deaths[key] = self._deaths.get(key, 0) + 1
            self._deaths.move_to_end(key)
            if len(self._deaths) > _MAX_KEYS:
                self._deaths.popitem(last=False)

    def check(self, key: str) -> None:
        """Refuses a quarantined program.

        Raises:
            CallError: PROGRAM_REFUSED.
        """
        if self._deaths.get(key, 0) < _MAX_DEATHS:
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
