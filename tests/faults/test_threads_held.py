"""Calls that begin and never send a request: they occupy threads, and must not occupy all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import numpy as np
from end_to_end.messages import open_channel, token_of
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall.v1 import kernel_service_pb2

_BEGUN = 400  # far more than there are threads and entries in the queue for them
_X = np.arange(12.0).reshape(4, 3)


def test_calls_whose_requests_never_come_leave_threads_for_others(exclusive_server):
    """Methods that need no slot are bounded by client while their requests are awaited."""
    finished = threading.Event()

    def never() -> Iterator[kernel_service_pb2.ListKernelsRequest]:
        finished.wait(120)
        yield from ()

    with (
        sc.connect(exclusive_server.address, retries=False) as client,
        open_channel(exclusive_server.address, token=token_of("guest")) as it,
    ):
        client.diff(_X, axis=0)
        begin = it.stream_unary("/shardcall.v1.KernelService/ListKernels").future
        calls = [begin(never(), timeout=120) for _ in range(_BEGUN)]
        try:
            wait_for(lambda: sum(call.done() for call in calls) > _BEGUN // 2)
            np.testing.assert_array_equal(client.diff(_X, axis=0, timeout=30).array, np.diff(_X, axis=0))
            refused = {call.code() for call in calls if call.done()}
            assert refused == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        finally:
            finished.set()
            for call in calls:
                call.cancel()
