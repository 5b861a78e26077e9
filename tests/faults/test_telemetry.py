"""The cost of telemetry per call."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import grpc

from shardcall.v1 import timing_pb2
from shardcall_server.frontend.observability.metrics import Metrics


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


def test_no_call_is_lost_where_many_threads_count():
    metrics, facts, calls_per_thread = Metrics(), Facts(), 1000

    def count(_: int) -> None:
        for _ in range(calls_per_thread):
            metrics.count("Execute", grpc.StatusCode.OK, None, facts)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    counted = metrics.registry.get_sample_value("shardcall_calls_total", {"method": "Execute", "code": "OK"})
    assert counted == 8 * calls_per_thread
