"""What the server's keeper learns of every call that has ended: a count, a line in the log, a span."""

from __future__ import annotations

import logging
from typing import Protocol

import grpc
import structlog

from shardcall_server.errors import Reason, shorten
from shardcall_server.frontend.observability.metrics import Metrics, known_method
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
"""What the keeper may have to do something about; the others are their caller's own affair."""


class Tracer(Protocol):
    """Makes a span of a call."""

    def record(self, method: str, call: ServerCall, code: grpc.StatusCode, reason: Reason | None) -> None:
        """Records a call that has just ended."""


class CallRecorder:
    """Tells of calls that have ended.

    A call's request id is bound to the log while it is handled; gRPC gives each call a context of its own, so it
    need not be unbound.

    Args:
        metrics: counts them.
        tracer: makes spans of them; None for none.
    """

    def __init__(self, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self._metrics = metrics
        self._tracer = tracer
        self._refusals = SparseWarning("callers were not let in")
        self._floods = SparseWarning("connections that sent too much and made no admitted call were closed")
        self._log = structlog.get_logger().bind()

    def begin(self, call: ServerCall) -> None:
        """Has every line that is logged until the call's end say which call it is."""
        structlog.contextvars.bind_contextvars(request_id=call.request_id)

    def refused(self, method: str, caller: str, code: grpc.StatusCode, reason: Reason) -> None:
        """Tells of a call that was not let in; many of them are one line.

        Args:
            method: its bare name.
            caller: the connection's other end.
            code: its status.
            reason: why.
        """
        method = known_method(method)
        self._metrics.count(method, code, reason, None)
        # A socket's address would be a path of the client's.
        self._refusals.note("unix" if caller.startswith("unix:") else caller, method=method, reason=reason.value)

    def flooded(self, caller: str) -> None:
        """Records a connection that was closed because it sent too much; many of them are one line of the log.

        Args:
            caller: the connection's other end.
        """
        self._metrics.count_flood()
        self._floods.note(caller)

    def end(
        self,
        method: str,
        call: ServerCall | None,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        reason: Reason | None = None,
    ) -> None:
        """Tells of a call's end.

        Args:
            method: its bare name, "Execute".
            call: the call; None where it was refused before it was one.
            code: its status.
            reason: why it failed; None where it did not.
        """
        if call is None:
            self.refused(method, "", code, reason or Reason.INTERNAL)
            return
        call.finish()
        self._metrics.count(method, code, reason, call)
        if self._tracer is not None:
            self._tracer.record(method, call, code, reason)
        if reason is not None:
            tell = self._log.warning if reason in _WORTH_A_WARNING else self._log.info
            tell("call failed", **_facts(method, call), code=code.name, reason=reason.value)
        elif self._log.is_enabled_for(logging.DEBUG):
            self._log.debug("call", **_facts(method, call), received_bytes=call.received_bytes, key=call.key[:12])


def _facts(method: str, call: ServerCall) -> dict[str, object]:
    # A socket's address would be a path of the client's.
    owner = "unix" if call.owner.startswith("unix:") else shorten(call.owner)
    total_s = round(call.timing.total_seconds, 6)
    return {"method": method, "kernel": call.kernel, "owner": owner, "total_s": total_s}
