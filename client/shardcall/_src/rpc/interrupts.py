"""Ctrl-C during a call."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Protocol, Self


class SupportsCancel(Protocol):
    """A call that can be cancelled from any thread."""

    def cancel(self) -> object:
        """Cancels the call."""


class InterruptHandler:
    """Makes Ctrl-C cancel a call instead of raising in the middle of it.

    gRPC runs Python code under locks in the caller's thread. A ``KeyboardInterrupt`` raised there can leave a
    lock held, and every later use of the channel hangs, even closing it. Within this block Ctrl-C cancels the call, and
    ``KeyboardInterrupt`` is raised at the block's end.

    Does nothing outside the main thread, which signals do not reach, or if the program has a handler of its own.

    Attributes:
        is_active: whether Ctrl-C cancels the call.
    """

    def __init__(self) -> None:
        self._call: SupportsCancel | None = None
        self._pressed = False
        self.is_active = False

    def watch(self, call: SupportsCancel) -> None:
        """Sets the call to cancel."""
        self._call = call
        if self._pressed:
            call.cancel()

    def __enter__(self) -> Self:
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self.is_active = True
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.is_active:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._pressed:
            raise KeyboardInterrupt from None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pressed = True
        if self._call is not None:  # in another thread, since this one may hold gRPC's locks
            threading.Thread(target=self._call.cancel, name="shardcall-cancel", daemon=True).start()
