"""Prometheus metrics of calls, which are counted as they end."""

from __future__ import annotations

from typing import Protocol

import grpc
from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.access.policy import RULES
from shardcall_server.frontend.observability.call_counters import CallCounters
from shardcall_server.frontend.observability.phase_histogram import PhaseHistogram

NO_KERNEL = "none"
"""The kernel label of calls that run no kernel, or an unknown one."""

OTHER = "other"
_METHODS = frozenset(name.rpartition("/")[2] for name in RULES if name.startswith("/shardcall.v1."))
_AUTH_FAILURES = frozenset({Reason.TOKEN_REQUIRED, Reason.SCOPE_MISSING})


class CallFacts(Protocol):
    """The attributes of `ServerCall` that are counted.

    Attributes:
        kernel: the name of a kernel of the mesh; empty if there is none.
        cache_hit: whether the program was in the cache; None if none was looked up.
        timing: the seconds of each phase.
        received_bytes: bytes of arrays received in messages.
        sent_bytes: bytes of arrays sent in messages.
        shared_bytes: bytes of arrays in the caller's segment, operands and results.
    """

    kernel: str
    cache_hit: bool | None
    timing: timing_pb2.Timing
    received_bytes: int
    sent_bytes: int
    shared_bytes: int


def method_label(name: str) -> str:
    """Returns a method's name, and `OTHER` for unknown ones, since callers could send any number of names."""
    return name if name in _METHODS else OTHER


class Metrics:
    """Counters of calls; all other metrics are read from their objects when they are scraped (`metrics_state.py`).

    No label contains a value that a client sent: methods are those of the services, codes and reasons those of the
    contract, and kernels those of the mesh.

    Attributes:
        registry: the exposed metrics.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._calls = CallCounters()
        self.registry.register(self._calls)
        self._failed = Counter(
            "shardcall_failed_calls", "Calls that ended with an error.", ["reason"], registry=self.registry
        )
        self._auth_failures = Counter(
            "shardcall_auth_failures", "Calls without a token that allows them.", ["reason"], registry=self.registry
        )
        self._floods = Counter(
            "shardcall_flooding_connections",
            "Connections closed because they sent too much and made no admitted call.",
            registry=self.registry,
        )
        self._phases = PhaseHistogram()
        self.registry.register(self._phases)
        for reason in _AUTH_FAILURES:
            self._auth_failures.labels(reason.value)  # starts at 0, so that the first failure is an increase

    def count(self, method: str, code: grpc.StatusCode, reason: Reason | None, call: CallFacts | None) -> None:
        """Counts a call that has finished.

        Args:
            method: the method's name without its service, "Execute".
            reason: the reason of its failure; None if it succeeded.
            call: the call; None if it was refused before a `ServerCall` was made.
        """
        moved = (call.received_bytes, call.sent_bytes, call.shared_bytes, call.cache_hit) if call is not None else ()
        self._calls.add(method_label(method), code.name, *moved)
        if reason is not None:
            self._failed.labels(reason.value).inc()
            if reason in _AUTH_FAILURES:
                self._auth_failures.labels(reason.value).inc()
        if call is not None:
            self._phases.observe(call.kernel or NO_KERNEL, call.timing)

    def count_flood(self) -> None:
        """Counts a connection that was closed because it sent too much."""
        self._floods.inc()
