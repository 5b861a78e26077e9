"""Progress bars in notebooks: an output of the cell that is replaced while calls run."""

from __future__ import annotations

import contextlib
import sys
import threading
import uuid
from typing import TYPE_CHECKING, Any, Protocol
from xml.etree.ElementTree import Element

from shardcall_core.markup import page
from shardcall_core.types.sizes import human
from shardcall_core.wire.forks import begin_anew_in_children

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardcall._src.display.progress import Progress

_INTERVAL_S = 0.2
_MAX_SHOWN = 40  # characters of the types of operands
_WAITING = "waiting for the mesh"


class ShownBar(Protocol):
    """A bar of a call.

    Attributes:
        is_hidden: True after the call.
    """

    is_hidden: bool

    def now(self) -> Progress | None:
        """Returns the progress of the call."""


class NotebookBars:
    """The bars shown, redrawn together by one thread."""

    def __init__(self) -> None:
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Shows no bars; in a forked child, whose parent continues to draw its own."""
        self._lock = threading.Lock()  # guards both, and is held while the bars are drawn
        self._bars: tuple[ShownBar, ...] = ()
        self._display_id = ""

    def add(self, bar: ShownBar) -> None:
        """Draws a bar, in a new output of the cell if it is the first."""
        with self._lock:
            if bar.is_hidden:
                return
            self._bars += (bar,)
            if not self._display_id:
                self._display_id = uuid.uuid4().hex
                self._publish(update=False)
                arguments = (self._display_id,)
                threading.Thread(target=self._redraw, args=arguments, name="shardcall-notebook", daemon=True).start()

    def remove(self, bar: ShownBar) -> None:
        """Removes a bar; the output is empty after the last one."""
        with self._lock:
            bar.is_hidden = True
            self._bars = tuple(other for other in self._bars if other is not bar)
            if not self._bars and self._display_id:
                self._publish(update=True)
                self._display_id = ""

    def _redraw(self, display_id: str) -> None:
        pause = threading.Event()  # never set: the thread waits on it to sleep
        while True:
            pause.wait(_INTERVAL_S)
            with self._lock:
                if self._display_id != display_id:
                    return
                self._publish(update=True)

    def _publish(self, *, update: bool) -> None:
        calls = [call for bar in self._bars if (call := bar.now()) is not None]
        shell = notebook_shell()
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the notebook may be closed by now
            shell.display_pub.publish(
                data=_bundle(calls), metadata={}, transient={"display_id": self._display_id}, update=update
            )


def notebook_shell() -> Any:
    """Returns IPython's shell of a notebook; None outside notebooks."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return None if getattr(shell, "kernel", None) is None else shell


def phase_label(call: Progress) -> str:
    """Returns the name of a phase, or what a complete upload waits for."""
    if call.phase == "upload" and call.done_bytes >= call.total_bytes:
        return _WAITING
    of_operands = f" of {_shortened(call.operands)}" if call.operands else ""
    return f"{call.phase} {call.what}{of_operands}".rstrip()


def amounts(call: Progress) -> str:
    """Returns the bytes that were moved and their rate, the iterations or the position, and the seconds of a phase."""
    elapsed = f"{call.elapsed_s:.0f} s"
    if call.iteration is not None:
        of_all = f" of {call.iterations:,}" if call.iterations is not None else ""
        return f"{call.iteration:,}{of_all} iterations, {elapsed}"
    if call.queue_position is not None:
        return f"position {call.queue_position:,}, {elapsed}"
    if not call.total_bytes:
        waiting = f", {call.waiting_calls:,} calls wait" if call.waiting_calls else ""
        sizes = "; ".join(map(_shortened, call.earlier_operands))
        return f"{elapsed}{waiting}{f', for each size: {sizes} before' if sizes else ''}"
    per_s = human(call.done_bytes / call.elapsed_s) if call.elapsed_s else human(0)
    return f"{human(call.done_bytes)} of {human(call.total_bytes)}, {per_s}/s, {elapsed}"


def _shortened(types: str) -> str:
    """Returns the types of operands in a few words."""
    return types if len(types) <= _MAX_SHOWN else f"{types[: _MAX_SHOWN - 1]}…"


def _bundle(calls: Iterable[Progress]) -> dict[str, str]:
    """Returns the bars in the notebook's formats; empty texts for none."""
    shown = list(calls)
    if not shown:
        return {"text/plain": "", "text/html": ""}
    lines = "\n".join(f"{phase_label(call)} {amounts(call)}" for call in shown)
    return {"text/plain": lines, "text/html": page.page("", *map(_bar, shown))}


def _bar(call: Progress) -> Element:
    return page.progress(phase_label(call), call.share, amounts(call))
