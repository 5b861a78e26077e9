"""Removal of expired leases, and of arrays with names that have ended."""

from __future__ import annotations

import threading

import structlog

from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable


class LeaseTimer:
    """Removes what has expired from a table, on a thread of its own."""

    def __init__(self, table: ResidentArrayTable) -> None:
        self._table = table
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="lease-timer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread; the leases stay."""
        self._is_closed = True
        self._table.ends_sooner.set()
        self._thread.join()

    def _serve(self) -> None:
        log = structlog.get_logger()
        while True:
            # Cleared before both are read, so that no later change of them is missed.
            self._table.ends_sooner.clear()
            if self._is_closed:
                return
            self._table.ends_sooner.wait(self._table.next_expiry_s())
            try:
                self._table.expire()
            except Exception:
                log.exception("the arrays of expired leases could not be deleted on the mesh")
