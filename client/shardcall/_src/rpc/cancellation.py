"""Cancels the RPCs of a call from another thread."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self, TypeVar

import grpc
from google.protobuf.message import Message

from shardcall._src.rpc.interrupts import InterruptHandler, SupportsCancel
from shardcall._src.rpc.wakeup import Wakeup
from shardcall_core.types.errors import CallCancelledError
from shardcall_core.wire.forks import Rpc

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)


class Cancellation:
    """Cancels the RPCs inside its block: those in flight, and those that would start.

    The block belongs to one thread; `cancel` may be called from any.
    """

    def __init__(self) -> None:
        # Without a lock, which a fork could leave locked: `cancel` finds a call here, or `watch` that it was called.
        self._watched: list[SupportsCancel] = []
        self._cancelled = False
        self._token: Token[Cancellation | None] | None = None

    def cancel(self) -> None:
        """Cancels the RPCs in flight; may be called again."""
        self._cancelled = True
        for call in list(self._watched):
            call.cancel()

    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled

    def check(self) -> None:
        """Checks that an RPC may start.

        Raises:
            CallCancelledError: after `cancel`.
        """
        if self._cancelled:
            raise CallCancelledError("the call was cancelled by its caller")

    def watch(self, call: SupportsCancel) -> None:
        """Adds a call to cancel, which may have finished by then.

        Raises:
            CallCancelledError: after `cancel`; the call is cancelled too.
        """
        self._watched.append(call)
        if self._cancelled:
            call.cancel()
            self.check()

    def __enter__(self) -> Self:
        self._token = _current.set(self)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _current.reset(self._token)
        self._watched = []  # which keep their answers alive


_current: ContextVar[Cancellation | None] = ContextVar("shardcall_cancellation", default=None)


def is_cancelled() -> bool:
    """Returns True if the `Cancellation` of the enclosing block was cancelled."""
    enclosing = _current.get()
    return enclosing is not None and enclosing.cancelled


def watch(call: SupportsCancel) -> None:
    """Adds a call to the `Cancellation` of the enclosing block, if there is one.

    Raises:
        CallCancelledError: if it was cancelled before.
    """
    if (enclosing := _current.get()) is not None:
        enclosing.watch(call)


def check() -> None:
    """Checks that the `Cancellation` of the enclosing block was not cancelled.

    Raises:
        CallCancelledError: if it was.
    """
    if (enclosing := _current.get()) is not None:
        enclosing.check()


def pause(seconds: float) -> None:
    """Waits, until the `Cancellation` of the enclosing block is cancelled.

    Raises:
        CallCancelledError: if it was cancelled.
    """
    pausing = _Pause()
    watch(pausing)
    if pausing.cancelled.wait(seconds):
        check()


class _Pause:
    """The event of a pause."""

    def __init__(self) -> None:
        self.cancelled = Wakeup()  # ends the pause

    def cancel(self) -> bool:
        self.cancelled.set()
        return True


def call_unary(
    method: grpc.UnaryUnaryMultiCallable[_Request, _Response],
    request: _Request,
    timeout_s: float,
    metadata: Sequence[tuple[str, str]],
    interrupt: InterruptHandler,
    beginning: AbstractContextManager[None],
) -> _Response:
    """Makes one call with one message each way, which the `Cancellation` of the enclosing block can cancel.

    Args:
        method: the method of a stub.
        request: its message.
        timeout_s: gRPC's timeout in seconds.
        metadata: the metadata to send.
        interrupt: the enclosing block, by which signal handlers cancel the call.
        beginning: the context in which gRPC begins the call.

    Raises:
        grpc.RpcError: if it fails or is cancelled.
        CallCancelledError: if it was cancelled before it began.
    """
    check()
    with Rpc() as rpc:
        if _current.get() is None and not interrupt.is_active:
            # Nobody can cancel the call; a future would take gRPC another thread.
            return method(request, timeout=timeout_s, metadata=tuple(metadata))
        with beginning:
            call = method.future(request, timeout=timeout_s, metadata=tuple(metadata))
        rpc.watch(call)
    interrupt.watch(call)
    watch(call)
    return _result(call)


def _result(call: grpc.Future[_Response]) -> _Response:
    try:
        return call.result()
    except grpc.FutureCancelledError:
        # The call itself is the RpcError with the status, though typed stubs do not declare it.
        raise call from None  # type: ignore[misc]
