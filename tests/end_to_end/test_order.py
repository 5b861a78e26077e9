"""Order of calls: a call waits for earlier launches, never for a slow caller or another call's result."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
from end_to_end.messages import header, open_channel
from end_to_end.processes import X, holds_nothing, is_busy, left_empty, stopped, wait_for
from end_to_end.segments_by_hand import MIB
from servers import ServerProcess

import shardcall as sc
from shardcall.v1 import array_pb2, kernel_service_pb2, kernel_service_pb2_grpc

PATIENCE_S = 120.0  # less than stalled calls last
STALLED = 12  # more than the worker has threads for results


def answers(client: sc.Client, i: int) -> None:
    """Makes a small call and looks at its result."""
    x = X + i
    np.testing.assert_array_equal(client.diff(x, axis=0, timeout=PATIENCE_S).array, np.diff(x, axis=0))


@pytest.fixture
def quiet(exclusive_server: ServerProcess) -> Iterator[ServerProcess]:
    with left_empty(exclusive_server) as server:
        yield server


def test_callers_who_do_not_send_their_operands_block_no_other(quiet):
    ended = threading.Event()

    def half() -> Iterator[kernel_service_pb2.ExecuteStreamRequest]:
        yield header((4, MIB // 8))
        yield kernel_service_pb2.ExecuteStreamRequest(chunk=array_pb2.TensorChunk(data=bytes(MIB)))
        ended.wait()

    with sc.connect(quiet.address) as client, ExitStack() as stack:
        stub = kernel_service_pb2_grpc.KernelServiceStub(stack.enter_context(open_channel(quiet.address)))
        stack.callback(ended.set)
        for _ in range(STALLED):
            stack.callback(stub.ExecuteStream(half(), timeout=600).cancel)
        wait_for(lambda: client.usage().regions >= STALLED)
        for i in range(20):
            answers(client, i)
        assert client.usage().regions >= STALLED


def test_questions_are_answered_while_the_mesh_is_busy(quiet):
    with sc.connect(quiet.address) as client, ThreadPoolExecutor(1) as pool:
        client.diff(X, axis=0)
        kept = client.put(X)
        with stopped(quiet):
            running = pool.submit(client.diff, X, axis=0, timeout=PATIENCE_S)
            wait_for(lambda: is_busy(client))
            assert "matmul" in [kernel.name for kernel in client.kernels()]
            assert client.kernel("diff").name == "diff"
            assert client.server_info().platform == "cpu"
            assert client.describe(kept).shape == X.shape
            assert len(client.list()) == 1
            assert not running.done()
        np.testing.assert_array_equal(running.result(PATIENCE_S).array, np.diff(X, axis=0))


def test_calls_of_one_array_run_in_their_order(quiet):
    """An array deleted behind a call that reads it is there for that call."""
    with sc.connect(quiet.address) as client, sc.connect(quiet.address) as other, ThreadPoolExecutor(1) as pool:
        kept = client.put(X)
        client.diff(kept, axis=0)
        client.diff(X, axis=0)
        with stopped(quiet):
            running = pool.submit(client.diff, kept, axis=0, timeout=PATIENCE_S)
            wait_for(lambda: is_busy(other))
            client.delete(kept)
            assert client.usage().arrays == 0
        np.testing.assert_array_equal(running.result(PATIENCE_S).array, np.diff(X, axis=0))
        wait_for(lambda: holds_nothing(client))
