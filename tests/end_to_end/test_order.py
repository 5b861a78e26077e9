"""Order of calls: a call waits for earlier launches, never for a slow caller or another call's result."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
from end_to_end.messages import chunk, header
from end_to_end.processes import X, is_busy, stopped, wait_for
from end_to_end.segments_by_hand import MIB
from servers import holds_nothing

import shardcall as sc
from shardcall.v1 import kernel_service_pb2, kernel_service_pb2_grpc

PATIENCE_S = 120.0  # less than stalled calls last
STALLED = 12  # more than the worker has threads for results


def answers(client: sc.Client, i: int) -> None:
    """Makes a small call and looks at its result."""
    result = client.diff(X + i, axis=0, timeout=PATIENCE_S)
    np.testing.assert_array_equal(result.array, np.diff(X + i, axis=0))


def test_callers_who_do_not_send_their_operands_block_no_other(server, channel):
    stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
    ended = threading.Event()

    def half() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header((4, MIB // 8))
        yield chunk(0, 0, MIB)
        ended.wait()

    with sc.connect(server.address) as client, ExitStack() as stack:
        stack.callback(ended.set)
        for _ in range(STALLED):
            stack.callback(stub.ExecuteStream(half(), timeout=600).cancel)
        wait_for(lambda: client.usage().regions >= STALLED)
        for i in range(20):
            answers(client, i)
        assert client.usage().regions >= STALLED


def test_questions_are_answered_while_the_mesh_is_busy_and_every_slot_is_taken(modest):
    with sc.connect(modest.address) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        kept = client.put(X)
        with stopped(modest):
            running = pool.submit(client.diff, X, axis=0, timeout=PATIENCE_S)
            wait_for(lambda: is_busy(client))
            with sc.connect(modest.address) as other:
                assert "matmul" in [kernel.name for kernel in other.kernels()]
            assert client.kernel("diff").name == "diff"
            assert client.server_info().platform == "cpu"
            assert client.describe(kept).shape == X.shape
            assert len(client.list()) == 1
            assert not running.done()
        np.testing.assert_array_equal(running.result(PATIENCE_S).array, np.diff(X, axis=0))


def test_calls_of_one_array_run_in_their_order(modest):
    """An array deleted behind a call that reads it is there for that call."""
    with sc.connect(modest.address) as client, sc.connect(modest.address) as other, ThreadPoolExecutor(1) as pool:
        kept = client.put(X)
        client.diff(kept, axis=0)
        client.diff(X, axis=0)
        with stopped(modest):
            running = pool.submit(client.diff, kept, axis=0, timeout=PATIENCE_S)
            wait_for(lambda: is_busy(other))
            client.delete(kept)
            assert client.usage().arrays == 0
        np.testing.assert_array_equal(running.result(PATIENCE_S).array, np.diff(X, axis=0))
        wait_for(lambda: holds_nothing(client))
