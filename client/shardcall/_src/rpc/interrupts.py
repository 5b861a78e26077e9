"""Signals during a call, such as Ctrl-C, which cancel its RPC."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # whose getsignal takes a quarter of the time
import _thread
import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

_SIGNALS = sorted(map(int, signal.valid_signals()))


class SupportsCancel(Protocol):
    """A call that can be cancelled from any thread."""

    def cancel(self) -> object:
        """Cancels the call."""


class InterruptHandler:
    """Makes a signal handler that raises cancel a call instead of raising in the middle of it.

    gRPC runs Python code under locks in the caller's thread. An exception raised there by the handler of a signal, such
    as ``KeyboardInterrupt`` or the timeout of an alarm, can leave a lock held, and every later use of the channel
    hangs, even closing it. Within this block the program's handlers run when their signals arrive. An exception of one
    cancels the call, and is raised at the block's end.

    Does nothing outside the main thread, which alone runs handlers. Blocks may be nested.
    """

    def __init__(self) -> None:
        self._call: SupportsCancel | None = None
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}  # of the program, replaced for the block
        self._error: BaseException | None = None

    @property
    def is_active(self) -> bool:
        """True if a handler can cancel the call."""
        return bool(self._handlers)

    def watch(self, call: SupportsCancel) -> None:
        """Sets the call to cancel."""
        self._call = call
        if self._error is not None:
            call.cancel()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            try:
                for number in _SIGNALS:
                    if callable(handler := _signal.getsignal(number)):
                        self._handlers[number] = handler
                        signal.signal(number, self._run_handler)
            except BaseException:  # of a handler that is not replaced yet
                self._restore()
                raise
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call = None  # gRPC's destructor takes a lock, too
        try:
            self._restore()
        finally:
            if self._error is not None:
                self._raise()

    def _restore(self) -> None:
        try:
            while self._handlers:
                number, handler = next(iter(self._handlers.items()))
                if _signal.getsignal(number) == self._run_handler:  # else the handler has set another one
                    signal.signal(number, handler)
                del self._handlers[number]
        except BaseException:  # of a handler that is not replaced any more
            self._restore()
            raise

    def _raise(self) -> None:
        error, self._error = self._error, None
        assert error is not None
        context = error.__context__
        try:
            raise error
        finally:
            error.__context__ = context  # and not the error of the call that it has cancelled

    def _run_handler(self, number: int, frame: FrameType | None) -> None:
        handler = self._handlers[number]
        enclosing = getattr(handler, "__self__", None)
        try:
            handler(number, frame)
        except BaseException as error:  # noqa: BLE001  # raised at the end
            trace = error.__traceback__
            self._error = self._error or error.with_traceback(trace and trace.tb_next)
        if self._error is not None or (isinstance(enclosing, InterruptHandler) and enclosing._error is not None):
            self._cancel()

    def _cancel(self) -> None:
        if self._call is not None:
            # In another thread, since this one may hold gRPC's locks; and not by `threading`, whose it may hold.
            with contextlib.suppress(RuntimeError):  # no thread can be started: the call ends by itself
                _thread.start_new_thread(self._call.cancel, ())
