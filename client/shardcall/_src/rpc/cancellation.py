"""Ending the RPCs of a call from another thread."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message

from shardcall._src.rpc.interrupts import Cancellable
from shardcall._src.types.errors import CallCancelledError

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class Cancellation:
    """Ends whatever runs inside its block: each RPC that is in flight, and each that would begin.

    The block belongs to one thread; `cancel` may be called from any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: list[Cancellable] = []
        self._cancelled = False
        self._token: Token[Cancellation | None] | None = None

    def cancel(self) -> None:
        """Cancels what is in flight; may be repeated."""
        with self._lock:
            self._cancelled = True
            watched, self._watched = self._watched, []
        for call in watched:
            call.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def check(self) -> None:
        """Lets nothing more begin.

        Raises:
            CallCancelledError: after `cancel`.
        """
        if self._cancelled:
            raise CallCancelledError("the call was cancelled by its caller")

    def watch(self, call: Cancellable) -> None:
        """Takes one more to cancel; one that has ended by then is not harmed.

        Raises:
            CallCancelledError: after `cancel`; this one is cancelled too.
        """
        with self._lock:
            if not self._cancelled:
                self._watched.append(call)
                return
        call.cancel()
        self.check()

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _current.reset(self._token)
        self._watched = []  # they hold their answers


_current: ContextVar[Cancellation | None] = ContextVar("shardcall_cancellation", default=None)


def is_cancelled() -> bool:
    """Whether the `Cancellation` around the caller, if there is one, was cancelled."""
    around = _current.get()
    return around is not None and around.cancelled


def watch(call: Cancellable) -> None:
    """Lets the `Cancellation` around the caller, if there is one, cancel this too.

    Raises:
        CallCancelledError: if it was cancelled before.
    """
    if (around := _current.get()) is not None:
        around.watch(call)


def check() -> None:
    """Lets nothing more begin inside a `Cancellation` that was cancelled.

    Raises:
        CallCancelledError: if it was.
    """
    if (around := _current.get()) is not None:
        around.check()


def pause(seconds: float) -> None:
    """Waits, unless the `Cancellation` around the caller ends it.

    Raises:
        CallCancelledError: if it was cancelled.
    """
    pausing = _Pause()
    watch(pausing)
    if pausing.cancelled.wait(seconds):
        check()


class _Pause:
    """What a pause waits for."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def cancel(self) -> bool:
        self.cancelled.set()
        return True


def call_unary(
    method: grpc.UnaryUnaryMultiCallable[_Request, _Response],
    request: _Request,
    timeout_s: float,
    metadata: Sequence[tuple[str, str]],
) -> _Response:
    """Makes one call with one message each way, which the `Cancellation` around the caller can cancel.

    Raises:
        grpc.RpcError: if it fails or is cancelled.
        CallCancelledError: if it was cancelled before it began.
    """
    if (around := _current.get()) is None:
        try:
            return method(request, timeout=timeout_s, metadata=tuple(metadata))
        except KeyboardInterrupt as interrupt:
            # gRPC does not end the call: it ends with the last reference to it, which a frame of gRPC's has.
            traceback.clear_frames(interrupt.__traceback__)
            raise
    around.check()
    call = method.future(request, timeout=timeout_s, metadata=tuple(metadata))
    around.watch(call)
    try:
        return call.result()
    except grpc.FutureCancelledError:
        # It is no RpcError; the call is one, and has the status. Typed stubs do not say so.
        raise call from None  # type: ignore[misc]
