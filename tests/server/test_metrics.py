"""Metrics of a call: their cost, and that no text of a client becomes a label."""

import grpc
from prometheus_client import generate_latest
from server.fake_calls import finished_call

from shardcall.v1 import timing_pb2
from shardcall_core.call_error import Reason
from shardcall_server.frontend.observability.metrics import Metrics

OK, INVALID = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT


def exposed(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_a_phase_that_was_not_reached_is_not_counted():
    metrics = Metrics()
    metrics.count("Execute", OK, None, finished_call())
    assert 'shardcall_phase_seconds_count{kernel="diff",phase="execute"} 1.0' in exposed(metrics)
    assert 'phase="compile"' not in exposed(metrics)


def test_times_are_counted_up_to_and_including_every_bound():
    metrics, labels = Metrics(), {"kernel": "diff", "phase": "execute"}
    for seconds in (0.0001, 0.0002, 100.0):
        metrics.count("Execute", OK, None, finished_call(timing=timing_pb2.Timing(execute_seconds=seconds)))
    value = metrics.registry.get_sample_value
    for bound, count in (("0.0001", 1), ("0.0003", 2), ("60.0", 2), ("+Inf", 3)):
        assert value("shardcall_phase_seconds_bucket", {**labels, "le": bound}) == count
    assert value("shardcall_phase_seconds_sum", labels) == 0.0001 + 0.0002 + 100.0


def test_a_call_that_never_was_one_is_counted_by_its_reason():
    metrics = Metrics()
    metrics.count("Execute", grpc.StatusCode.UNAUTHENTICATED, Reason.TOKEN_REQUIRED, None)
    assert 'shardcall_auth_failures_total{reason="TOKEN_REQUIRED"} 1.0' in exposed(metrics)
    assert 'shardcall_failed_calls_total{reason="TOKEN_REQUIRED"} 1.0' in exposed(metrics)
