"""Watches of waiting calls: reports of their progress to the caller's function, or to a bar."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import TypeAlias

from shardcall._src.display.progress import Listener, Progress
from shardcall._src.display.progress_bars import Bar
from shardcall_core.types.tracebacks import level_of_caller

REPORT_INTERVAL_S = 0.1
"""The seconds between two reports of one call."""

Latest: TypeAlias = Callable[[str, str], Progress | None]
"""Returns the progress of a waiting call by its request id and its name, or of the call that it waits for."""


class GuardedListener:
    """A function of the caller that gets reports until it raises an error, of which there is a warning."""

    def __init__(self, listener: Listener) -> None:
        self._listener: Listener | None = listener

    @property
    def is_silent(self) -> bool:
        """True after an error."""
        return self._listener is None

    def __call__(self, progress: Progress) -> None:
        """Reports; the error of a listener never ends the call."""
        if (listener := self._listener) is None:
            return
        try:
            listener(progress)
        except Exception as error:  # noqa: BLE001  # it is the caller's, and the call goes on
            self._listener = None
            with contextlib.suppress(Warning):  # warnings may be errors
                warnings.warn(
                    f"the function given as progress= raised {error!r} and is not called again; the call continues",
                    RuntimeWarning,
                    stacklevel=level_of_caller(),
                )


class CallWatch:
    """Looks at the progress of a call while a thread waits for it; that thread calls `update` and `close`.

    Args:
        latest: returns the progress.
    """

    def __init__(self, latest: Callable[[], Progress | None]) -> None:
        self._latest = latest

    def update(self) -> None:
        """Asks for the progress, at most as often as its source allows, and shows it."""

    def close(self) -> None:
        """Ends the reports, as the call has ended."""


class ReportingWatch(CallWatch):
    """Calls a listener."""

    def __init__(self, latest: Callable[[], Progress | None], listener: GuardedListener) -> None:
        super().__init__(latest)
        self._listener = listener

    def update(self) -> None:
        if not self._listener.is_silent and (progress := self._latest()) is not None:
            self._listener(progress)


class ShownWatch(CallWatch):
    """Shows a bar.

    Args:
        delay_s: seconds until the bar is shown.
    """

    def __init__(self, latest: Callable[[], Progress | None], delay_s: float) -> None:
        super().__init__(latest)
        self._progress: Progress | None = None
        self._bar = Bar(lambda: self._progress)
        self._timer = show_later(self._bar, delay_s)

    def update(self) -> None:
        self._progress = self._latest()

    def close(self) -> None:
        self._timer.cancel()
        self._bar.hide()


def show_later(bar: Bar, delay_s: float) -> threading.Timer:
    """Shows a bar after some seconds, by a timer, since the caller's thread waits; returns the timer."""
    timer = threading.Timer(delay_s, bar.show)
    timer.name, timer.daemon = "shardcall-progress", True
    with contextlib.suppress(RuntimeError):  # no thread can be started: there is no bar
        timer.start()
    return timer
