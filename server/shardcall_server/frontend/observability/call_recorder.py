"""The record of every finished call: metrics, a log line and a span."""

from __future__ import annotations

import logging
from typing import Protocol

import grpc
import structlog

from shardcall_core.call_error import Reason, shorten
from shardcall_server.frontend.observability.call_totals import TotalsByName
from shardcall_server.frontend.observability.metrics import Metrics, method_label
from shardcall_server.frontend.observability.recent_calls import RecentCalls
from shardcall_server.frontend.observability.sparse_warning import SparseWarning
from shardcall_server.frontend.rpc.server_call import ServerCall

_WORTH_A_WARNING = frozenset(
    {
        Reason.COMPILE_FAILED,
        Reason.COMPILE_LIMIT,
        Reason.EXECUTE_LIMIT,
        Reason.INTERNAL,
        Reason.MESH_NOT_READY,
        Reason.MESH_RESTARTED,
        Reason.OUT_OF_DEVICE_MEMORY,
        Reason.OUT_OF_HOST_MEMORY,
        Reason.PROGRAM_REFUSED,
        Reason.SCOPE_MISSING,
        Reason.SERVER_BUSY,
        Reason.TOKEN_REQUIRED,
    }
)
"""Reasons that the administrator may have to act on; only the caller can act on the others."""


class Tracer(Protocol):
    """Makes spans of calls."""

    def record(self, method: str, call: ServerCall, code: grpc.StatusCode, reason: Reason | None) -> None:
        """Records a call that has just finished."""


class CallRecorder:
    """Counts, logs and traces calls that have finished.

    A call's request id is bound to the log context while it is handled. gRPC gives each call a context of its own, so
    it need not be unbound.

    Args:
        recent: keeps the last calls; None if nobody can see them.

    Attributes:
        totals: the calls by kernel and by principal.
        recent: as above.
    """

    def __init__(self, metrics: Metrics, tracer: Tracer | None = None, recent: RecentCalls | None = None) -> None:
        self.totals = TotalsByName()
        self.recent = recent
        self._metrics = metrics
        self._tracer = tracer
        self._refusals = SparseWarning("calls were not admitted")
        self._floods = SparseWarning("connections that sent too much without an admitted call were closed")
        self._log = structlog.get_logger().bind()

    def begin(self, call: ServerCall) -> None:
        """Adds the call's request id to every log line until the call finishes."""
        structlog.contextvars.bind_contextvars(request_id=call.request_id)

    def refused(self, method: str, caller: str, code: grpc.StatusCode, reason: Reason) -> None:
        """Records a call that was not admitted; many of them share one log line.

        Args:
            method: the method's name without its service.
            caller: the peer, as gRPC names it.
            reason: the reason of the refusal.
        """
        method = method_label(method)
        self._metrics.count(method, code, reason, None)
        if self.recent is not None:
            self.recent.add_refused(method, reason)
        # The address of a Unix socket would be a path of the client.
        self._refusals.note("unix" if caller.startswith("unix:") else caller, method=method, reason=reason.value)

    def flooded(self, caller: str) -> None:
        """Records a connection that was closed because it sent too much; many of them share one log line."""
        self._metrics.count_flood()
        self._floods.note(caller)

    def finish(
        self,
        method: str,
        call: ServerCall | None,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        reason: Reason | None = None,
    ) -> None:
        """Records a call that has finished.

        Args:
            method: the method's name without its service, "Execute".
            call: the call; None if it was refused before a `ServerCall` was made.
            reason: the reason of its failure; None if it succeeded.
        """
        if call is None:
            self.refused(method, "", code, reason or Reason.INTERNAL)
            return
        call.finish()
        self._metrics.count(method, code, reason, call)
        self.totals.add(
            call.kernel,
            call.principal_name,
            is_failed=reason is not None,
            execute_s=call.timing.execute_seconds,
            array_bytes=call.received_bytes + call.sent_bytes + call.shared_bytes,
        )
        if self.recent is not None:
            self.recent.add(method, call, reason)
        if self._tracer is not None:
            self._tracer.record(method, call, code, reason)
        if reason is not None:
            log = self._log.warning if reason in _WORTH_A_WARNING else self._log.info
            if call.is_dependent:  # a chain of any length has one line
                log = self._log.debug
            log("call failed", **_facts(method, call), code=code.name, reason=reason.value)
        elif self._log.is_enabled_for(logging.DEBUG):
            self._log.debug("call", **_facts(method, call), received_bytes=call.received_bytes, key=call.key[:12])


def _facts(method: str, call: ServerCall) -> dict[str, object]:
    # The address of a Unix socket would be a path of the client.
    owner = "unix" if call.owner.startswith("unix:") else shorten(call.owner)
    total_s = round(call.timing.total_seconds, 6)
    kernel = {"kernel": call.kernel} if call.kernel else {}  # it may be refused before the kernel is known
    return {"method": method, **kernel, "owner": owner, "total_s": total_s}
