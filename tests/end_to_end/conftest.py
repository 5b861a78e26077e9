"""A client that copies nothing by itself, and a stub that speaks the contract, with a look at the server after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import execute, open_channel, operand

import shardcall as sc
from shardcall.v1 import kernel_service_pb2_grpc


@pytest.fixture(scope="module")
def strict_client(server) -> Iterator[sc.Client]:
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


@pytest.fixture
def copies(client) -> Callable[[], int]:
    """Returns the number of the client's implicit copies since it was asked for the last time."""
    counted = [client.statistics().implicit_gets]

    def since() -> int:
        counted.append(client.statistics().implicit_gets)
        return counted[-1] - counted[-2]

    return since


@pytest.fixture(scope="session")
def channel(server) -> Iterator[grpc.Channel]:
    with open_channel(server.address) as connected:
        yield connected


@pytest.fixture
def stub(server, channel) -> Iterator[kernel_service_pb2_grpc.KernelServiceStub]:
    """Whatever a test sends, the server's processes stay the same and the next call is right."""
    connected = kernel_service_pb2_grpc.KernelServiceStub(channel)
    before = server.worker_pids()
    yield connected
    assert server.process.poll() is None
    assert server.worker_pids() == before
    answer = connected.Execute(execute(operand(np.arange(6.0))), timeout=30)
    assert np.frombuffer(answer.results[0].inline.data).tolist() == [1.0] * 5
