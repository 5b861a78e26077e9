"""Meters of the progress of calls."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from shardcall._src.display.progress import Listener, Phase, Progress
from shardcall._src.display.progress_bars import Bar, in_notebook, on_terminal
from shardcall._src.display.watches import (
    REPORT_INTERVAL_S,
    CallWatch,
    GuardedListener,
    Latest,
    ReportingWatch,
    ShownWatch,
    Watcher,
    show_later,
)
from shardcall_core.types.errors import InvalidParameterError

SHOW_AFTER_S = 1.0
_WATCH_AFTER_S = 0.5
# Smaller arrays move within the second anyway, and the timer that opens a bar costs a thread.
_BAR_BYTES = 8 * 2**20


class Meter:
    """Counts the bytes of one call by phase; this class reports to nobody.

    A context manager of the call. Phases follow one another; `add` may be called from another thread. A call with a
    request id is watched while it moves no bytes.
    """

    def upload(self, total_bytes: int) -> None:
        """Begins the upload, if there is anything to move."""
        if total_bytes:
            self.begin("upload", total_bytes)

    def compile(self) -> None:
        """Begins the compilation, which has no bytes to count."""
        self.begin("compiling", 0)

    def download(self, total_bytes: int) -> None:
        """Begins the download, if there is anything to move."""
        if total_bytes:
            self.begin("download", total_bytes)

    def begin(self, phase: Phase, total_bytes: int) -> None:
        """Begins a phase."""

    def add(self, count_bytes: int) -> None:
        """Counts bytes, before they are passed on: the answer to the last may arrive immediately."""

    def close(self, *, done: bool) -> None:
        """Finishes the last phase.

        Args:
            done: True if the call succeeded.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(done=error_type is None)


SILENT = Meter()
"""The meter of calls whose progress is not reported."""


class Meters:
    """Makes the meters of a client's calls, and the watches of those that a thread waits for.

    Attributes:
        latest: returns the progress of a waiting call; None before the client can ask the server.
        watch_after_s: the seconds that a thread waits before it asks for a watch.

    Args:
        progress: a listener; True for a bar on a terminal or in a notebook; False for neither.
        show_after_s: the seconds after which a call shows a bar.
    """

    def __init__(self, progress: bool | Listener = True, show_after_s: float = SHOW_AFTER_S) -> None:
        if not callable(progress) and not isinstance(progress, bool):
            raise InvalidParameterError(
                f"progress is {progress!r}; give a function of a shardcall.Progress, True for a bar or False",
                field="progress",
            )
        self._listener = GuardedListener(progress) if callable(progress) else None
        self._is_shown = progress is True
        self._show_after_s = show_after_s
        self.latest: Latest | None = None
        self.watch_after_s = _WATCH_AFTER_S if self._listener is None else REPORT_INTERVAL_S
        self._watcher = Watcher(self.watch_after_s)
        self._advised = set[str]()

    def start(self, request_id: str = "", what: str = "") -> Meter:
        """Returns the meter of a call that begins now.

        Args:
            request_id: its request id; empty for a call whose wait is not reported.
            what: its function or kernel.
        """
        latest = partial(self.latest, request_id, what) if request_id and self.latest is not None else None
        if self._listener is not None:
            return _ReportingMeter(self._listener, self._watcher, latest)
        if self._is_shown and (on_terminal() or in_notebook()):
            return _ShownMeter(self._show_after_s, self._watcher, latest)
        return SILENT

    def watch(self, request_id: str = "", what: str = "") -> CallWatch | None:
        """Returns the watch of a call that a thread has waited for as long as `watch_after_s`; None if nobody looks.

        Args:
            request_id: the request id of the call; empty for one that waits for the calls that were submitted.
            what: its function or kernel.
        """
        if (latest := self.latest) is None:
            return None
        if self._listener is not None:
            return (
                None if self._listener.is_silent else ReportingWatch(partial(latest, request_id, what), self._listener)
            )
        if self._is_shown and (on_terminal() or in_notebook()):
            delay_s = max(0.0, self._show_after_s - _WATCH_AFTER_S)
            return ShownWatch(partial(latest, request_id, what), delay_s, self._advised)
        return None


class _CountingMeter(Meter):
    """Holds the progress of the call.

    Args:
        watcher: calls `refresh` if the call takes long.
        latest: returns the progress of the call at the server; None for a call that is not watched.
    """

    def __init__(self, watcher: Watcher, latest: Callable[[], Progress | None] | None) -> None:
        self._phase: Phase | None = None
        self._done = self._total = 0
        self._began_at = 0.0
        self._watcher = watcher
        self._latest = latest
        self._is_closed = False

    def __enter__(self) -> Self:
        if self._latest is not None:
            self._watcher.add(self)
        return self

    def close(self, *, done: bool) -> None:
        self._is_closed = True
        if self._latest is not None:
            self._watcher.remove(self)

    def refresh(self) -> None:
        """Asks for the progress at the server, unless bytes are being moved, and shows it."""
        if self._latest is None or self._done < self._total:
            return
        progress = self._latest()
        if progress is not None and not self._is_closed and self._done >= self._total:
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        """Shows the progress at the server."""

    def begin(self, phase: Phase, total_bytes: int) -> None:
        self._phase, self._done, self._total = phase, 0, total_bytes
        self._began_at = time.monotonic()

    def add(self, count_bytes: int) -> None:
        self._done += count_bytes

    def now(self) -> Progress | None:
        """Returns the progress of the call; None before its first phase."""
        if self._phase is None:
            return None
        return Progress(self._phase, self._done, self._total, time.monotonic() - self._began_at)


class _ReportingMeter(_CountingMeter):
    """Calls a listener up to ten times a second and at the end of each phase; maybe in a thread of gRPC."""

    def __init__(
        self, listener: GuardedListener, watcher: Watcher, latest: Callable[[], Progress | None] | None
    ) -> None:
        super().__init__(watcher, latest)
        self._listener = listener
        self._next_at = 0.0

    def begin(self, phase: Phase, total_bytes: int) -> None:
        self._finish_phase()
        super().begin(phase, total_bytes)
        self._next_at = self._began_at + REPORT_INTERVAL_S

    def add(self, count_bytes: int) -> None:
        self._done += count_bytes
        if self._done >= self._total:
            self._finish_phase()
        elif time.monotonic() >= self._next_at:
            self._report()
            self._next_at = time.monotonic() + REPORT_INTERVAL_S

    def close(self, *, done: bool) -> None:
        super().close(done=done)
        if done:
            self._finish_phase()

    def refresh(self) -> None:
        if not self._listener.is_silent:
            super().refresh()

    def _show(self, progress: Progress) -> None:
        self._listener(progress)

    def _finish_phase(self) -> None:
        self._report()
        self._phase = None

    def _report(self) -> None:
        if (progress := self.now()) is not None:
            self._listener(progress)


class _ShownMeter(_CountingMeter):
    """Shows a bar of the call's progress."""

    def __init__(self, show_after_s: float, watcher: Watcher, latest: Callable[[], Progress | None] | None) -> None:
        super().__init__(watcher, latest)
        self._shown: Progress | None = None
        self._show_at = time.monotonic() + show_after_s
        self._bar = Bar(self.now)
        self._timer: threading.Timer | None = None
        self._moved_in_s: float | None = None

    def begin(self, phase: Phase, total_bytes: int) -> None:
        super().begin(phase, total_bytes)
        self._moved_in_s = self._shown = None
        if phase == "compiling" or total_bytes > _BAR_BYTES:
            self._show_later()

    def _show_later(self) -> None:
        if self._timer is None:
            self._timer = show_later(self._bar, max(self._show_at - time.monotonic(), 0.0))

    def _show(self, progress: Progress) -> None:
        self._shown = progress
        self._show_later()

    def add(self, count_bytes: int) -> None:
        super().add(count_bytes)
        if self._done >= self._total:
            self._moved_in_s = time.monotonic() - self._began_at

    def now(self) -> Progress | None:
        """Returns the progress of the call; its time, and so the rate, stops once all bytes are moved."""
        if (shown := self._shown) is not None:
            return shown
        progress, moved_in_s = super().now(), self._moved_in_s
        if progress is None or moved_in_s is None:
            return progress
        return dataclasses.replace(progress, elapsed_s=moved_in_s)

    def close(self, *, done: bool) -> None:
        super().close(done=done)
        if self._timer is not None:
            self._timer.cancel()
        self._bar.hide()
