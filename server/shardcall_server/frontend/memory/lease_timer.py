"""Removal of expired leases."""

from __future__ import annotations

import threading

import structlog

from shardcall_server.frontend.memory.resident_array_table import ResidentArrayTable


class LeaseTimer:
    """Removes expired leases from a table, on a thread of its own."""

    def __init__(self, table: ResidentArrayTable) -> None:
        self._table = table
        self._closing = threading.Event()  # ends the thread
        self._thread = threading.Thread(target=self._serve, name="lease-timer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the thread; the leases stay."""
        self._closing.set()
        self._thread.join()

    def _serve(self) -> None:
        log = structlog.get_logger()
        while not self._closing.wait(self._table.next_expiry_s()):
            try:
                self._table.expire()
            except Exception:
                log.exception("the arrays of expired leases could not be deleted on the mesh")
