"""Clients of each file, and a stub that speaks the contract, with a look at the server after it."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from client_parts import transport_of
from clusters import running_cluster
from end_to_end.filing import Filing, Restarting
from end_to_end.live_pages import PageServer, page_server
from end_to_end.messages import execute, open_channel, operand
from end_to_end.principals import ADMIN, TokenServer
from end_to_end.processes import left_empty, wait_for
from end_to_end.raw_stream import Stream, item, opened, prepare
from end_to_end.scraping import metrics_url
from servers import ServerProcess, exclusively, holds_nothing, run_folder, running_server

import shardcall as sc
from shardcall.v1 import array_service_pb2_grpc, kernel_service_pb2_grpc
from shardcall_core.wire import token_file
from shardcall_core.wire.token_file import Entry

RELAYED = ("--no-shared-memory",)
CLUSTERS = {"2x4": (2, 4, ()), "2x4 relayed": (2, 4, RELAYED), "4x2 relayed": (4, 2, RELAYED)}
"""By name: hosts, devices of each, and the options of their agents."""


@pytest.fixture(scope="module")
def client(server) -> Iterator[sc.Client]:
    """A client of the shared server, whose arrays and failed calls are those of this file alone."""
    with sc.connect(server.address) as connected:
        yield connected


@pytest.fixture
def exclusive(exclusive_server) -> Iterator[ServerProcess]:
    """The server of 8 devices whose worker tests may stop or kill; what one has left on it is gone before the next."""
    with left_empty(exclusive_server) as emptied:
        yield emptied


@pytest.fixture
def limited(limited_server) -> Iterator[ServerProcess]:
    """The server with small limits; what one test has left on it is gone before the next."""
    with left_empty(limited_server) as emptied:
        yield emptied


@pytest.fixture(scope="module")
def modest_server() -> Iterator[ServerProcess]:
    memory = ("--max-bytes-in-flight", str(18 << 20), "--max-call-bytes", str(16 << 20), "--trim-after-s", "0.2")
    counts = ("--max-concurrent-calls", "1", "--max-cached-programs", "2")
    with running_server(*memory, *counts, log=Path(os.devnull), why="it has memory for few calls") as running:
        yield running


@pytest.fixture
def modest(modest_server) -> Iterator[ServerProcess]:
    """A server with memory for one call of 8 MiB, which works on one call at a time and keeps two programs."""
    with left_empty(modest_server) as emptied:
        yield emptied


@pytest.fixture(scope="module")
def leasing_server() -> Iterator[ServerProcess]:
    """A server of 8 devices that the tests of this file have to themselves, whose leases end after 2 s.

    One principal may have 30 arrays there.
    """
    with exclusively("limits") as running:
        yield running


@pytest.fixture
def observer(leasing_server) -> Iterator[sc.Client]:
    """A client of that server without shared memory; afterwards nothing is left there."""
    with sc.connect(leasing_server.address, shared_memory=False) as client:
        yield client
        wait_for(lambda: holds_nothing(client))


@pytest.fixture
def arrays(leasing_server) -> Iterator[array_service_pb2_grpc.ArrayServiceStub]:
    """The service of that server as it is, without a client that renews leases."""
    with open_channel(leasing_server.address) as channel:
        yield array_service_pb2_grpc.ArrayServiceStub(channel)


@pytest.fixture
def ours(leasing_server) -> Iterator[sc.Client]:
    """A client of that server, whose principal has no arrays afterwards."""
    with sc.connect(leasing_server.address) as client:
        yield client
        client.delete(*client.list(of_all_clients=True))


@pytest.fixture
def servers(tmp_path) -> Iterator[Restarting]:
    """Servers one after another that have one folder of arrays."""
    restarting = Restarting(tmp_path / "arrays")
    yield restarting
    restarting.end()


@pytest.fixture(scope="module")
def filing_server() -> Iterator[Filing]:
    """A server that the tests of this file have to themselves, with a folder for files of limited number and size."""
    with exclusively("limits") as running, sc.connect(running.address) as connected:
        yield Filing(running, run_folder() / "servers" / "limits" / token_file.user_name(), connected)


@pytest.fixture
def filing(filing_server) -> Iterator[Filing]:
    """The server with a folder, without files before and after a test."""
    filing_server.folder.mkdir(exist_ok=True)
    yield filing_server
    shutil.rmtree(filing_server.folder)


@pytest.fixture(scope="module")
def temporary_folder(tmp_path_factory) -> Iterator[None]:
    """The servers that are started make their temporary folders in a folder of the test's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("tmp")))
        patch.setattr(tempfile, "tempdir", None)
        yield
    tempfile.tempdir = None


@pytest.fixture(scope="module")
def recording(temporary_folder) -> Iterator[ServerProcess]:
    """A server that records profiles."""
    with running_server(why="it records profiles") as running:
        yield running


@pytest.fixture(scope="module")
def recorder(recording) -> Iterator[sc.Client]:
    with sc.connect(recording.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def observed(tmp_path_factory) -> Iterator[tuple[ServerProcess, str, Path]]:
    """A server that shows its metrics and logs every call; itself, where they are, and the log."""
    log = tmp_path_factory.mktemp("observed") / "log"
    with running_server(
        "--metrics-port", "0", "--log-level", "debug", devices=2, log=log, why="its metrics are counted"
    ) as running:
        yield running, metrics_url(log), log


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> Iterator[PageServer]:
    """A server with the live page."""
    with page_server(tmp_path_factory.mktemp("page") / "log") as server:
        yield server


@pytest.fixture(scope="module")
def principals(tmp_path_factory) -> Iterator[TokenServer]:
    folder = tmp_path_factory.mktemp("principals")
    path, log = str(folder / "state" / "token"), folder / "log"
    admin = Entry.make(ADMIN, token_file.SCOPES)
    token_file.create(path, [admin])
    token_file.create(token_file.admin_path(path), [Entry.make(ADMIN, token_file.SCOPES)])
    with running_server(
        "--token-file", path, "--metrics-port", "0", devices=2, log=log, why="its tokens change"
    ) as server:
        yield TokenServer(server, path, metrics_url(log), {ADMIN: admin})


@pytest.fixture
def admin(principals) -> Iterator[sc.Client]:
    with principals.connect(principals.entries[ADMIN]) as client:
        yield client


@pytest.fixture(scope="module")
def serving() -> Iterator[ServerProcess]:
    """A server that registers shared memory for the Open Inference Protocol."""
    with running_server("--shared-memory-regions", why="it has regions of shared memory") as running:
        yield running


@pytest.fixture(scope="module")
def hosts(request) -> Iterator[sc.Client]:
    """A client of a server of 8 devices in all."""
    count, devices, agent_options = CLUSTERS[request.param]
    with running_cluster(count, devices, agent_options=agent_options) as cluster, sc.connect(cluster.address) as client:
        yield client


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
def stream(server) -> Iterator[Stream]:
    with opened(server) as stream:
        yield stream


@pytest.fixture(scope="module")
def narrow_server() -> Iterator[ServerProcess]:
    flags = ("--max-streamed-calls", "4", "--max-streamed-bytes", str(1 << 20), "--max-call-streams", "4")
    with running_server(*flags, devices=1, log=Path(os.devnull), why="its calls are few") as running:
        yield running


@pytest.fixture
def narrow(narrow_server) -> Iterator[Stream]:
    """A stream of 4 calls and 1 MiB, which has run one call."""

    def is_free() -> bool:  # of calls that the test before has left
        with opened(narrow_server) as other:
            other.send(prepare(), item(1000, np.arange(8.0)))
            try:
                other.answer(1000)
            except grpc.RpcError:
                return False
            return True

    wait_for(is_free)
    with opened(narrow_server) as stream:
        stream.send(prepare(), item(1000, np.arange(8.0)))
        stream.answer(1000)
        yield stream


@pytest.fixture
def only_streamed(client, monkeypatch) -> sc.Client:
    """A client that puts and copies arrays by its call stream alone."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an RPC of its own")

    monkeypatch.setattr(transport_of(client), "put_array", refuse)
    monkeypatch.setattr(transport_of(client), "get_array", refuse)
    return client


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
