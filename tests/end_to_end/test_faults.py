"""Processes that die or hang, callers that leave."""

import os
import signal

import numpy as np
from end_to_end.messages import open_channel
from end_to_end.processes import X, memory_files, wait_for
from grpc_health.v1 import health_pb2, health_pb2_grpc

import shardcall as sc
from shardcall import P
from shardcall.v1 import server_info_service_pb2, server_info_service_pb2_grpc

MESH = sc.Mesh(x=8)


def test_memory_stays_mapped_for_a_while_and_is_then_released(exclusive):
    large = np.ones((1024, 2048))
    with sc.connect(exclusive.address, shared_memory=False) as client:
        client.diff(X, axis=0)
        (worker,) = exclusive.worker_pids()
        for mesh in (MESH, sc.Mesh(x=1)):
            client.diff(large, axis=0, mesh=mesh, spec=P("x", None))
            # No further call: an idle server holds nothing of the last one.
            wait_for(lambda: not memory_files(worker))
            wait_for(lambda: not memory_files(exclusive.process.pid))


def test_health_follows_the_mesh(exclusive):
    with open_channel(exclusive.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        # A connection without an admitted call may not ask as often as `until` does.
        information = server_info_service_pb2_grpc.ServerInfoServiceStub(channel)
        information.GetServerInfo(server_info_service_pb2.GetServerInfoRequest(), timeout=60)

        def status(service: str = "shardcall.v1.KernelService") -> int:
            return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60).status

        assert status() == status("") == health_pb2.HealthCheckResponse.SERVING
        os.kill(exclusive.worker_pids()[0], signal.SIGKILL)
        wait_for(lambda: status() == health_pb2.HealthCheckResponse.NOT_SERVING)
        wait_for(lambda: status() == health_pb2.HealthCheckResponse.SERVING)
