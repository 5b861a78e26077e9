"""Metrics of a server whose threads count at once."""

from concurrent.futures import ThreadPoolExecutor

import grpc
from server.fake_calls import finished_call

from shardcall_server.frontend.observability.metrics import Metrics


def test_no_call_is_lost_where_many_threads_count():
    metrics, call, calls_per_thread = Metrics(), finished_call(), 1000

    def count(_: int) -> None:
        for _ in range(calls_per_thread):
            metrics.count("Execute", grpc.StatusCode.OK, None, call)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(count, range(8)))
    counted = metrics.registry.get_sample_value("shardcall_calls_total", {"method": "Execute", "code": "OK"})
    assert counted == 8 * calls_per_thread
