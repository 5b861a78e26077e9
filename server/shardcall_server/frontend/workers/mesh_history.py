"""History of the mesh: its readiness, the number of exits and the reason for the last one."""

from __future__ import annotations

import time

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.workers.exit_reason import ExitCause, ExitReason

_SHORT_SESSION_S = 5.0


class MeshHistory:
    """History of the mesh since the start of the server.

    Attributes:
        short_sessions: number of consecutive sessions in which a worker failed soon after it was ready.
        exit_counts: number of exits of the mesh by cause.
    """

    def __init__(self) -> None:
        self.short_sessions = 0
        self.exit_counts = dict.fromkeys(ExitCause, 0)
        self._ready_since: float | None = None
        self._last: ExitReason | None = None
        self._last_at = 0.0

    @property
    def is_ready(self) -> bool:
        """True while the mesh answers calls."""
        return self._ready_since is not None

    def record_ready(self) -> None:
        """Records that the mesh answers calls."""
        self._ready_since = time.monotonic()

    def record_exit(self, reason: ExitReason) -> None:
        """Records an exit of the mesh."""
        now = time.monotonic()
        if self._ready_since is not None:
            is_short = reason.is_fault and now - self._ready_since < _SHORT_SESSION_S
            self.short_sessions = self.short_sessions + 1 if is_short else 0
        self._ready_since, self._last, self._last_at = None, reason, now
        self.exit_counts[reason.cause] += 1

    def state(self, spare_ready: bool) -> server_info_service_pb2.MeshState:
        """Returns the history as the message that the server reports."""
        since, now = self._ready_since, time.monotonic()
        return server_info_service_pb2.MeshState(
            ready=since is not None,
            ready_seconds=0.0 if since is None else now - since,
            restarts=sum(self.exit_counts.values()),
            last_exit_reason=self._last.text if self._last else "",
            seconds_since_exit=now - self._last_at if self._last else 0.0,
            spare_ready=spare_ready,
        )
