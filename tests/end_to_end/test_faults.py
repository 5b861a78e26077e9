"""Processes that die or hang, callers that leave."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.messages import open_channel
from end_to_end.processes import X, is_busy, left_empty, memory_files, wait_for
from grpc_health.v1 import health_pb2, health_pb2_grpc
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc
from shardcall import P
from shardcall.v1 import (
    kernel_pb2,
    kernel_service_pb2,
    kernel_service_pb2_grpc,
    server_info_service_pb2,
    server_info_service_pb2_grpc,
)

MESH = sc.Mesh(x=8)


@pytest.fixture(scope="module")
def robust_server() -> Iterator[ServerProcess]:
    with running_server("--trim-after-s", "0.2", why="its worker is killed") as server:
        yield server


@pytest.fixture
def robust(robust_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server that outlives what the tests do to its mesh, and gives memory back soon."""
    with left_empty(robust_server) as server:
        yield server


def test_memory_stays_mapped_for_a_while_and_is_then_released(robust):
    large = np.ones((1024, 2048))
    with sc.connect(robust.address, shared_memory=False) as client:
        client.diff(X, axis=0)
        (worker,) = robust.worker_pids()
        for mesh in (MESH, sc.Mesh(x=1)):
            client.diff(large, axis=0, mesh=mesh, spec=P("x", None))
            # No further call: an idle server holds nothing of the last one.
            wait_for(lambda: not memory_files(worker))
            wait_for(lambda: not memory_files(robust.process.pid))


def test_health_follows_the_mesh(robust):
    with open_channel(robust.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        # A connection without an admitted call may not ask as often as `until` does.
        information = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        information.GetServerInfo(server_info_service_pb2.GetServerInfoRequest(), timeout=60)

        def status(service: str = "shardcall.v1.KernelService") -> int:
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60).status

        assert status() == status("") == health_pb2.HealthCheckResponse.SERVING
        os.kill(robust.worker_pids()[0], signal.SIGKILL)
        wait_for(lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING)
        wait_for(lambda: status() == health_pb2.HealthCheckResponse.SERVING)


def test_a_call_cancelled_while_it_waits_leaves_at_once_and_holds_nothing(robust):
    with sc.connect(robust.address) as client, open_channel(robust.address) as channel:
        client.diff(X, axis=0)
        (worker,) = robust.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        operand = kernel_service_pb2.Operand(type={"element_type": 15, "shape": [4]}, inline={"data": bytes(32)})
        request = kernel_service_pb2.ExecuteRequest(call=kernel_pb2.KernelCall(kernel="diff"), operands=[operand])
        call = stub.Execute.future(request, timeout=30)
        wait_for(lambda: is_busy(client))
        call.cancel()
        wait_for(lambda: not is_busy(client))
        os.kill(worker, signal.SIGCONT)
        np.testing.assert_array_equal(client.diff(X, axis=0).array, np.diff(X, axis=0))
        wait_for(lambda: holds_nothing(client))
