"""The threads that handle calls, and those that refuse calls when all of them are busy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from shardcall_server.frontend.rpc.counted_threads import CountedThreads
from shardcall_server.frontend.rpc.status import CallStatus

_MAX_WAITING = 256  # calls that wait for a thread; most calls over a limit are refused within a moment
_MAX_REFUSALS = 1024  # refusals that wait for a thread; beyond it, calls get gRPC's refusal without details
_REFUSING_THREADS = 2


class CallThreads(CountedThreads):
    """gRPC's thread pool, with a count of the calls that run or wait in it.

    gRPC's own limit answers without details. Calls over this limit are therefore refused before gRPC's limit is
    reached, on threads reserved for refusals.

    Args:
        threads: the number of calls that run at once.
    """

    def __init__(self, threads: int) -> None:
        super().__init__(threads, threads + _MAX_WAITING, "call")
        self._refusers = CountedThreads(_REFUSING_THREADS, _MAX_REFUSALS, "refuse")

    @property
    def hard_limit(self) -> int:
        """The number of calls that gRPC may accept, refused ones included."""
        return self._limit + _MAX_REFUSALS

    def refusing(self, refuse: Callable[[str], CallStatus]) -> grpc.RpcMethodHandler[Any, Any]:
        """Returns a handler that refuses every call without reading its request.

        Args:
            refuse: returns the status for a peer, as gRPC names it.
        """

        def behaviour(_: object, context: grpc.ServicerContext) -> object:
            if not context.is_active():  # the caller has cancelled
                return b""
            return context.abort_with_status(refuse(context.peer()))

        # gRPC's attribute; without it, refusals would wait for a thread as other calls do.
        behaviour.experimental_thread_pool = self._refusers  # type: ignore[attr-defined]
        return grpc.stream_unary_rpc_method_handler(behaviour)
