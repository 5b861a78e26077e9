"""Probation of clients that ended several meshes: only programs that have run before are run for them."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable

from shardcall_core.call_error import CallError, Reason

_MAX_EXITS = 3
_PERIOD_S = 600.0
_MAX_OWNERS = 1024


class Probation:
    """Counts by owner how often a mesh ended because of one program.

    An owner who ended three meshes within ten minutes is on probation for ten minutes.

    Args:
        clock: a monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # guards both; expiries are also read without it
        self._exits: dict[str, deque[float]] = {}
        self._expiries: dict[str, float] = {}

    def count(self, owner: str) -> None:
        """Adds one to the count of an owner; of too many owners, the one that was counted first is dropped."""
        now = self._clock()
        with self._lock:
            exits = self._exits.pop(owner, deque[float](maxlen=_MAX_EXITS))
            exits.append(now)
            self._exits[owner] = exits
            if len(self._exits) > _MAX_OWNERS:
                del self._exits[next(iter(self._exits))]
            if len(exits) == _MAX_EXITS and now - exits[0] < _PERIOD_S:
                self._expiries[owner] = now + _PERIOD_S
                exits.clear()

    def check(self, owner: str) -> None:
        """Refuses a new program of an owner on probation.

        Raises:
            CallError: PROGRAM_REFUSED.
        """
        expiry = self._expiries.get(owner)
        if expiry is None:
            return
        left_s = math.ceil(expiry - self._clock())
        if left_s <= 0:
            with self._lock:
                self._expiries.pop(owner, None)
            return
        raise CallError(
            Reason.PROGRAM_REFUSED,
            f"programs of this client ended the mesh {_MAX_EXITS} times within {_PERIOD_S / 60:g} minutes; for another "
            f"{left_s} s, only programs that have run before are run for it, and this one has not; repeat the call "
            "then, and inform the server's administrator",
            metadata={"deaths": str(_MAX_EXITS), "ends_in_seconds": str(left_s)},
        )
