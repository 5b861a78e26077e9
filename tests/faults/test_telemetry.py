"""The cost of telemetry per call."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc

from shardcall.v1 import timing_pb2
from shardcall_server.frontend.observability.metrics import Metrics


def test_no_call_is_lost_where_many_threads_count():
    metrics, calls_per_thread = Metrics(), 1000
    timing = timing_pb2.Timing(queue_seconds=2e-4, execute_seconds=3e-4, total_seconds=1e-3)
    sizes = {"received_bytes": 64, "sent_bytes": 56, "shared_bytes": 0}
    facts: Any = SimpleNamespace(kernel="diff", cache_hit=True, timing=timing, **sizes)

    def count(_: int) -> None:
        for _ in range(calls_per_thread):
            metrics.count("Execute", grpc.StatusCode.OK, None, facts)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    counted = metrics.registry.get_sample_value("shardcall_calls_total", {"method": "Execute", "code": "OK"})
    assert counted == 8 * calls_per_thread
