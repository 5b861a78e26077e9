"""The browsers that watch the live page, and what they are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor

import structlog

from shardcall_server.frontend.web.site import LivePage

_MAX_WAITING = 3  # snapshots of one viewer; one that reads none in this time is dropped


class _Viewer:
    """A browser that watches.

    Attributes:
        drop: ends its connection.
        events: the snapshots that wait for it; None ends them.
    """

    def __init__(self, drop: Callable[[], None]) -> None:
        self.drop = drop
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_WAITING)


class Viewers:
    """Sends snapshots to those who watch, and makes none while nobody does; one thread uses it.

    Args:
        page: makes the snapshots.
        pool: the threads that make them, so that probes do not wait.
    """

    def __init__(self, page: LivePage, pool: Executor) -> None:
        self._page = page
        self._pool = pool
        self._viewers: set[_Viewer] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def are_full(self) -> bool:
        """True if no other may watch."""
        return len(self._viewers) >= self._page.max_viewers

    async def events(self, is_allowed: Callable[[], bool], drop: Callable[[], None]) -> AsyncGenerator[bytes]:
        """Yields a snapshot for each interval as an event of a stream.

        Args:
            is_allowed: returns whether the viewer may still see them.
            drop: called if the viewer reads too slowly.
        """
        if self.are_full:  # others may have come since it was asked
            return
        viewer = _Viewer(drop)
        self._viewers.add(viewer)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send())
        try:
            while is_allowed() and (event := await viewer.events.get()) is not None:
                yield event
        finally:
            self._viewers.discard(viewer)

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        while self._viewers:
            began = loop.time()
            try:
                event = await loop.run_in_executor(self._pool, self._make)
            except Exception:  # noqa: BLE001  # the server serves probes and metrics, too
                structlog.get_logger().exception("the live page could not be made")
                self._end()
                return
            for viewer in list(self._viewers):
                self._offer(viewer, event)
            await asyncio.sleep(max(0.0, began + self._page.interval_s - loop.time()))

    def _make(self) -> bytes:
        return f"data: {json.dumps(self._page.snapshot(), separators=(',', ':'))}\n\n".encode()

    def _offer(self, viewer: _Viewer, event: bytes) -> None:
        if viewer.events.full():
            self._viewers.discard(viewer)
            viewer.drop()
        else:
            viewer.events.put_nowait(event)

    def _end(self) -> None:
        for viewer in self._viewers:
            if viewer.events.full():
                viewer.drop()
            else:
                viewer.events.put_nowait(None)
