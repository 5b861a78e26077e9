"""The threads that handle calls, and who answers when all of them are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.status import CallStatus

_MAX_WAITING = 256  # calls that wait for a thread: most of those over a limit are refused in a moment
_MAX_REFUSALS = 1024  # refusals that wait for theirs; whatever comes then gets gRPC's bare refusal
_REFUSING_THREADS = 2


class CallThreads(CountedThreads):
    """gRPC's threads, with a count of the calls that have or await one.

    gRPC's own limit answers in a sentence without details. So calls over ours are refused before that one is reached,
    on threads kept for nothing else.

    Args:
        threads: how many calls are handled at once.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, threads + _MAX_WAITING, "call")
        self._refusers = CountedThreads(_REFUSING_THREADS, _MAX_REFUSALS, "refuse")

    @property
    def hard_limit(self) -> int:
        """The most calls that gRPC may take at all."""
        return self._most + _MAX_REFUSALS

    def refusing(self, refuse: Callable[[str], CallStatus]) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler that refuses whatever call it gets, without a look at its request.

        Args:
            refuse: makes the status; told the other end of the connection.
        """

        def behaviour(_: object, context: grpc.ServicerContext) -> object:
            if not context.is_active():  # its caller has left
                return b""
            return context.abort_with_status(refuse(context.peer()))

        # The name of this attribute is gRPC's; where it went, refusals would wait for a thread as other calls do.
        behaviour.experimental_thread_pool = self._refusers  # type: ignore[attr-defined]
        return grpc.stream_unary_rpc_method_handler(behaviour)
