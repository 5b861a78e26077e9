"""Progress bars: on terminals drawn by rich where it is installed, in notebooks by `notebook_bars`."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from shardcall._src.display.notebook_bars import NotebookBars, amounts, notebook_shell, phase_label
from shardcall_core.wire.forks import begin_anew_in_children

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from shardcall._src.display.progress import Progress

_FRAMES_PER_S = 10
_BAR_COLUMNS = 40


class Bar:
    """A bar of a call, drawn from `show` to `hide`, which may be called in any order.

    Attributes:
        is_hidden: True after `hide`.

    Args:
        now: returns the progress of the call.
    """

    def __init__(self, now: Callable[[], Progress | None]) -> None:
        self.now = now
        self.is_hidden = False

    def show(self) -> None:
        """Draws the bar among those of other calls: in a notebook, else on the terminal, which needs rich."""
        if in_notebook():
            _notebook.add(self)
        elif importlib.util.find_spec("rich") is not None:
            _screen.add(self)

    def hide(self) -> None:
        """Removes the bar; after the last one the terminal is as before the first."""
        _notebook.remove(self)
        _screen.remove(self)


class _Screen:
    """The bars shown, redrawn together by one thread of rich."""

    def __init__(self) -> None:
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Shows no bars; in a forked child, whose parent continues to draw its own."""
        self._lock = threading.Lock()  # guards both, and is held while rich starts or stops
        self._bars: tuple[Bar, ...] = ()
        self._live: Live | None = None

    def add(self, bar: Bar) -> None:
        live = _live(self._draw)  # outside the lock: importing rich is slow, and `remove` must not wait for it
        with self._lock, contextlib.suppress(OSError, ValueError):  # the terminal may be closed by now
            if bar.is_hidden:
                return
            self._bars += (bar,)
            if self._live is None:
                live.start()
                self._live = live

    def remove(self, bar: Bar) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            bar.is_hidden = True
            self._bars = tuple(other for other in self._bars if other is not bar)
            if not self._bars and self._live is not None:
                live, self._live = self._live, None
                live.stop()

    def _draw(self) -> Table:
        return _table(filter(None, (bar.now() for bar in self._bars)))


# One for all clients and threads: a terminal can redraw one set of lines.
_screen = _Screen()
_notebook = NotebookBars()


def on_terminal() -> bool:
    """Returns True if standard error is a terminal."""
    stream = sys.stderr
    return stream is not None and not stream.closed and stream.isatty()


def in_notebook() -> bool:
    """Returns True in a notebook that can redraw the output of a cell."""
    return notebook_shell() is not None


def _live(draw: Callable[[], Table]) -> Live:
    from rich.console import Console  # noqa: PLC0415  # optional, and slow to import
    from rich.live import Live  # noqa: PLC0415

    return Live(
        console=Console(stderr=True, force_jupyter=False),
        get_renderable=draw,
        refresh_per_second=_FRAMES_PER_S,
        transient=True,
        # Output of other threads goes above the bars, unless it goes to a file.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
    )


def _table(calls: Iterable[Progress]) -> Table:
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Column, Table  # noqa: PLC0415

    shown = list(calls)
    # The bar shrinks on narrow terminals. A last frame with columns and no rows has no line, and rich would leave the
    # previous line on the terminal.
    columns = (Column(no_wrap=True), Column(max_width=_BAR_COLUMNS), Column(no_wrap=True)) if shown else ()
    table = Table.grid(*columns, padding=(0, 1))
    for call in shown:
        share = call.share
        bar = ProgressBar(total=None if share is None else 1.0, completed=share or 0.0, pulse=share is None)
        table.add_row(phase_label(call), bar, amounts(call))
    return table
