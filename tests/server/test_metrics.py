"""Metrics of a call: their cost, and that no text of a client becomes a label."""

from dataclasses import dataclass, field

import grpc
from prometheus_client import generate_latest

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.observability.metrics import Metrics

OK, INVALID = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT


@dataclass
class Facts:
    """The facts of a small call."""

    kernel: str = "diff"
    cache_hit: bool | None = True
    timing: timing_pb2.Timing = field(
        default_factory=lambda: timing_pb2.Timing(
            receive_seconds=1e-5, queue_seconds=2e-4, place_seconds=1e-5, execute_seconds=3e-4, total_seconds=1e-3
        )
    )
    received_bytes: int = 64
    sent_bytes: int = 56
    shared_bytes: int = 0


def exposed(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_a_phase_that_was_not_reached_is_not_counted():
    metrics = Metrics()
    metrics.count("Execute", OK, None, Facts())
    assert 'shardcall_phase_seconds_count{kernel="diff",phase="execute"} 1.0' in exposed(metrics)
    assert 'phase="compile"' not in exposed(metrics)


def test_times_are_counted_up_to_and_including_every_bound():
    metrics = Metrics()
    for seconds in (0.0001, 0.0002, 100.0):
        metrics.count("Execute", OK, None, Facts(timing=timing_pb2.Timing(execute_seconds=seconds)))
    buckets = {
        bound: metrics.registry.get_sample_value(
            "shardcall_phase_seconds_bucket", {"kernel": "diff", "phase": "execute", "le": bound}
        )
        for bound in ("0.0001", "0.0003", "60.0", "+Inf")
    }
    assert buckets == {"0.0001": 1, "0.0003": 2, "60.0": 2, "+Inf": 3}
    taken = metrics.registry.get_sample_value("shardcall_phase_seconds_sum", {"kernel": "diff", "phase": "execute"})
    assert taken == 0.0001 + 0.0002 + 100.0


def test_a_call_that_never_was_one_is_counted_by_its_reason():
    metrics = Metrics()
    metrics.count("Execute", grpc.StatusCode.UNAUTHENTICATED, Reason.TOKEN_REQUIRED, None)
    assert 'shardcall_auth_failures_total{reason="TOKEN_REQUIRED"} 1.0' in exposed(metrics)
    assert 'shardcall_failed_calls_total{reason="TOKEN_REQUIRED"} 1.0' in exposed(metrics)


def test_methods_that_are_not_of_the_contract_are_one():
    metrics = Metrics()
    for i in range(100):
        metrics.count(f"Method{i}", INVALID, None, None)
    assert 'shardcall_calls_total{code="INVALID_ARGUMENT",method="other"} 100.0' in exposed(metrics)
    assert "Method1" not in exposed(metrics)


def test_two_servers_of_one_process_count_apart():
    one, other = Metrics(), Metrics()
    one.count("Execute", OK, None, Facts())
    assert "shardcall_calls_total{" in exposed(one)
    assert "shardcall_calls_total{" not in exposed(other)
