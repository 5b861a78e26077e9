"""Watches of waiting calls: reports of their progress to the caller's function, or to a bar."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Callable
from typing import Protocol, TypeAlias

from shardcall._src.display.progress import Listener, Progress
from shardcall._src.display.progress_bars import Bar
from shardcall_core.locks import lock
from shardcall_core.types.errors import RecompilationWarning
from shardcall_core.types.tracebacks import level_of_caller
from shardcall_core.wire.forks import begin_anew_in_children

REPORT_INTERVAL_S = 0.1
"""The seconds between two reports of one call."""

_IDLE_LOOKS = 10

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
    """Shows a bar, and warns once of each kernel that is compiled for a third size.

    Args:
        delay_s: seconds until the bar is shown.
        advised: the kernels that the client was warned of.
    """

    def __init__(self, latest: Callable[[], Progress | None], delay_s: float, advised: set[str]) -> None:
        super().__init__(latest)
        self._progress: Progress | None = None
        self._advised = advised
        self._bar = Bar(lambda: self._progress)
        self._timer = show_later(self._bar, delay_s)

    def update(self) -> None:
        self._progress = self._latest() or self._progress
        now = self._progress
        if now is not None and len(now.earlier_operands) >= 2 and now.what not in self._advised:
            self._advised.add(now.what)
            sizes = "; ".join((*now.earlier_operands, now.operands))
            with contextlib.suppress(Warning):  # warnings may be errors, and the call goes on
                warnings.warn(
                    f"{now.what} is compiled for each size of its operands: {sizes}; client.bucket(x) makes arrays of "
                    "many lengths share programs, and so does padding them to a few sizes",
                    RecompilationWarning,
                    stacklevel=level_of_caller(),
                )

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


class Watched(Protocol):
    """A call that a thread waits for in gRPC, where it cannot look itself."""

    def refresh(self) -> None:
        """Asks for the progress, and shows it."""


class Watcher:
    """Looks at calls ten times a second, in a thread that runs while there are some; safe to use from several threads.

    Args:
        after_s: the seconds from `add` to the first look.
    """

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Forgets all calls, in a forked child."""
        self._lock = lock("the lock of the watched calls")  # guards both
        self._calls: dict[Watched, float] = {}
        self._is_running = False

    def add(self, call: Watched) -> None:
        """Adds a call."""
        with self._lock:
            self._calls[call] = time.monotonic() + self._after_s
            if self._is_running:
                return
            self._is_running = True
        thread = threading.Thread(target=self._run, name="shardcall-progress", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no thread can be started: there are no reports
            self._set_stopped()

    def remove(self, call: Watched) -> None:
        """Removes a call, as it has ended."""
        with self._lock:
            self._calls.pop(call, None)

    def _run(self) -> None:
        try:
            self._watch()
        except BaseException:
            self._set_stopped()  # the next `add` starts a thread
            raise

    def _watch(self) -> None:
        idle = 0
        while idle < _IDLE_LOOKS or not self._ends():
            time.sleep(REPORT_INTERVAL_S)
            with self._lock:
                calls = [call for call, due in self._calls.items() if due <= time.monotonic()]
                idle = 0 if self._calls else idle + 1
            for call in calls:
                call.refresh()

    def _ends(self) -> bool:
        with self._lock:
            self._is_running = bool(self._calls)
            return not self._is_running

    def _set_stopped(self) -> None:
        with self._lock:
            self._is_running = False
