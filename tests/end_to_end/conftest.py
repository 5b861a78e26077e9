"""A client that copies nothing by itself, and a stub that speaks the contract, with a look at the server after it."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.filing import Filing, files_of
from end_to_end.messages import execute, open_channel, operand
from end_to_end.raw_stream import Stream, opened

import shardcall as sc
from shardcall.v1 import kernel_service_pb2_grpc


@pytest.fixture(scope="module")
def strict_client(server) -> Iterator[sc.Client]:
    """A client that refuses to copy arrays unless they are asked for."""
    with sc.connect(server.address, implicit_get="error") as client:
        yield client


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


@pytest.fixture
def stream(server) -> Iterator[Stream]:
    """A call stream whose frames the test writes."""
    with opened(server) as opened_stream:
        yield opened_stream


@pytest.fixture
def own_client(server) -> Iterator[sc.Client]:
    """A client with a call stream and arrays of its own."""
    with sc.connect(server.address) as connected:
        yield connected


@pytest.fixture
def filing(exclusive_server) -> Iterator[Filing]:
    """The files of this user, of which there are none before and after the test."""
    with files_of(exclusive_server) as files:
        yield files


@pytest.fixture(params=[".npy", ".zarr"])
def suffix(request) -> str:
    """The end of the names of files of a format."""
    if request.param == ".zarr":
        pytest.importorskip("tensorstore")
        pytest.importorskip("zarr")
    return str(request.param)


@pytest.fixture
def ours(limited_server) -> Iterator[sc.Client]:
    """A client that has a server alone; all arrays of its principal are deleted after the test."""
    with sc.connect(limited_server.address) as connected:
        yield connected
        connected.delete(*connected.list(of_all_clients=True))
