"""What the server has counted since its start, as Prometheus knows it."""

from __future__ import annotations

from typing import Protocol

import grpc
from prometheus_client import CollectorRegistry, Counter, ProcessCollector

from shardcall.v1 import timing_pb2
from shardcall_server.errors import Reason
from shardcall_server.frontend.access.policy import RULES
from shardcall_server.frontend.observability.phase_histogram import PhaseHistogram

NO_KERNEL = "none"
"""What stands for the kernel of calls that run none, or none that the mesh has."""

OTHER = "other"
_METHODS = frozenset(name.rpartition("/")[2] for name in RULES if name.startswith("/shardcall.v1."))
_REFUSED_ENTRY = frozenset({Reason.TOKEN_REQUIRED, Reason.SCOPE_MISSING})


class CallFacts(Protocol):
    """What is counted of a call that has ended.

    Attributes:
        kernel: the name that the mesh knows it by; empty where it knows none.
        cache_hit: whether its program was there; None where it needed none, or was refused before.
        timing: the seconds of each phase.
        received_bytes: bytes of arrays that came in messages.
        sent_bytes: bytes of arrays that went in messages.
        shared_bytes: bytes of arrays in its caller's segment, in and out.
    """

    kernel: str
    cache_hit: bool | None
    timing: timing_pb2.Timing
    received_bytes: int
    sent_bytes: int
    shared_bytes: int


def known_method(name: str) -> str:
    """A method's name, and one for all that are none: whoever is turned away could make names without end."""
    return name if name in _METHODS else OTHER


class Metrics:
    """Counts calls; everything else is read off the objects that know it when somebody asks (`metrics_state.py`).

    No label takes what a client sent: methods are those that are served, codes and reasons those of the contract,
    and kernels those that the mesh has.

    Attributes:
        registry: what is exposed.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._calls = Counter("shardcall_calls", "Calls that have ended.", ["method", "code"], registry=self.registry)
        self._failed = Counter(
            "shardcall_failed_calls", "Calls that ended with an error.", ["reason"], registry=self.registry
        )
        self._entry = Counter(
            "shardcall_auth_failures", "Calls without a token that allows them.", ["reason"], registry=self.registry
        )
        self._floods = Counter(
            "shardcall_flooding_connections",
            "Connections closed because they sent too much and made no admitted call.",
            registry=self.registry,
        )
        self._phases = PhaseHistogram()
        self.registry.register(self._phases)
        self._moved = Counter(
            "shardcall_array_bytes",
            "Bytes of arrays of calls that were served, in messages or through shared memory.",
            ["way"],
            registry=self.registry,
        )
        self._lookups = Counter(
            "shardcall_program_lookups",
            "Calls by whether their program was there.",
            ["outcome"],
            registry=self.registry,
        )
        self._received, self._sent, self._shared = map(self._moved.labels, ("received", "sent", "shared"))
        self._hit, self._miss = map(self._lookups.labels, ("hit", "miss"))
        for reason in _REFUSED_ENTRY:
            self._entry.labels(reason.value)  # there from the start, so that a first failure is a rise
        self._by_end: dict[tuple[str, grpc.StatusCode], Counter] = {}

    def count(self, method: str, code: grpc.StatusCode, reason: Reason | None, call: CallFacts | None) -> None:
        """Counts a call that has ended.

        Args:
            method: its bare name, "Execute".
            code: its status.
            reason: why it failed; None where it did not, or where that is only gRPC's to say.
            call: the call; None where it was refused before it was one.
        """
        method = known_method(method)
        ends = self._by_end.get((method, code))
        if ends is None:  # looking labels up anew would be the largest part of the cost
            ends = self._by_end[method, code] = self._calls.labels(method, code.name)
        ends.inc()
        if reason is not None:
            self._failed.labels(reason.value).inc()
            if reason in _REFUSED_ENTRY:
                self._entry.labels(reason.value).inc()
        if call is not None:
            self._count_facts(call)

    def count_flood(self) -> None:
        """Counts a connection that was closed because it sent too much."""
        self._floods.inc()

    def _count_facts(self, call: CallFacts) -> None:
        self._phases.observe(call.kernel or NO_KERNEL, call.timing)
        if call.cache_hit is not None:
            (self._hit if call.cache_hit else self._miss).inc()
        if call.received_bytes:
            self._received.inc(call.received_bytes)
        if call.sent_bytes:
            self._sent.inc(call.sent_bytes)
        if call.shared_bytes:
            self._shared.inc(call.shared_bytes)
