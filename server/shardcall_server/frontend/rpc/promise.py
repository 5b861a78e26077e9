"""Values that another thread sets, with callbacks.

A `concurrent.futures.Future` creates a condition variable with a reentrant lock, which took a tenth of the time of a
small call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from typing import Any, Generic, Protocol, TypeVar

import structlog

from shardcall_core.call_error import CallError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Waitable(Protocol[T_co]):
    """A `Promise` or a `concurrent.futures.Future`."""

    def done(self) -> bool:
        """Returns whether the value or an error is set."""

    def result(self, timeout_s: float | None = None, /) -> T_co:
        """Returns the value, or raises the error; waits until one is set."""

    def exception(self, timeout_s: float | None = None, /) -> BaseException | None:
        """Returns the error, or None; waits until it or the value is set."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Calls back when the value or the error is set; at once if it is."""


class Promise(Generic[T]):
    """A value or an error that is set once. Callbacks run on the thread that sets it.

    A `CallError` is kept without its traceback, which has the call and its messages, and each `result` raises another.
    """

    __slots__ = ("_callbacks", "_error", "_is_done", "_value")

    _value: T

    def __init__(self) -> None:
        self._is_done = False
        self._error: BaseException | None = None
        self._callbacks: deque[Callable[[Any], object]] = deque()

    def done(self) -> bool:
        """Returns whether the value or an error is set."""
        return self._is_done

    def result(self, timeout_s: float | None = None) -> T:
        """Returns the value, or raises the error; waits until one is set."""
        if not self._is_done:
            self._block(timeout_s)
        if self._error is None:
            return self._value
        try:
            raise _without_traceback(self._error)
        finally:
            del self  # an error of another class would refer to itself by its traceback

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """Returns the error, or None; waits until it or the value is set."""
        if not self._is_done:
            self._block(timeout_s)
        return self._error

    def set_result(self, value: T) -> None:
        """Sets the value.

        Raises:
            InvalidStateError: it or an error is set.
        """
        if self._is_done:
            raise InvalidStateError
        self._value = value
        self._is_done = True
        self._call_back()

    def set_exception(self, error: BaseException) -> None:
        """Sets the error.

        Raises:
            InvalidStateError: it or a value is set.
        """
        if self._is_done:
            raise InvalidStateError
        self._error = _without_traceback(error)
        self._is_done = True
        self._call_back()

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Calls back when the value or the error is set; at once if it is."""
        self._callbacks.append(callback)
        if self._is_done:
            self._call_back()

    def _call_back(self) -> None:
        # Two threads may do this at once; each callback is popped by one of them.
        callbacks = self._callbacks
        while callbacks:
            try:
                callback = callbacks.popleft()
            except IndexError:
                return
            try:
                callback(self)
            except Exception:  # noqa: BLE001  # the others wait too
                structlog.get_logger().exception("a callback failed")

    def _block(self, timeout_s: float | None) -> None:
        is_set = threading.Event()  # one for each thread that waits
        self.add_done_callback(lambda _: is_set.set())
        if not is_set.wait(timeout_s):
            raise TimeoutError


def _without_traceback(error: BaseException) -> BaseException:
    return error.copy() if isinstance(error, CallError) else error
