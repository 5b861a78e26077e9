"""What became of the mesh so far: whether it answers, how often it ended, and why the last time."""

from __future__ import annotations

import time

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.workers.exit_reason import ExitKind, ExitReason

_SHORT_LIFE_S = 5.0


class MeshHistory:
    """The mesh's history since the server's start.

    Attributes:
        short_lives: how often in a row a worker ended by a fault soon after it was ready.
        ends: how often it ended, by kind.
    """

    def __init__(self) -> None:
        self.short_lives = 0
        self.ends = dict.fromkeys(ExitKind, 0)
        self._ready_since: float | None = None
        self._last: ExitReason | None = None
        self._last_at = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether the mesh answers."""
        return self._ready_since is not None

    def became_ready(self) -> None:
        """Tells that the mesh answers."""
        self._ready_since = time.monotonic()

    def ended(self, end: ExitReason) -> None:
        """Tells that it ended, and how."""
        now = time.monotonic()
        if self._ready_since is not None:
            is_short = end.is_fault and now - self._ready_since < _SHORT_LIFE_S
            self.short_lives = self.short_lives + 1 if is_short else 0
        self._ready_since, self._last, self._last_at = None, end, now
        self.ends[end.kind] += 1

    def state(self, spare_ready: bool) -> server_info_service_pb2.MeshState:
        """All of it, as the server tells it."""
        since, now = self._ready_since, time.monotonic()
        return server_info_service_pb2.MeshState(
            ready=since is not None,
            ready_seconds=0.0 if since is None else now - since,
            restarts=sum(self.ends.values()),
            last_exit_reason=self._last.reason if self._last else "",
            seconds_since_exit=now - self._last_at if self._last else 0.0,
            spare_ready=spare_ready,
        )
