"""Calls whose callers neither send nor read: they end by themselves, and block no other calls."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from end_to_end.messages import SMALL_WINDOW, header, open_channel
from end_to_end.processes import left_empty, wait_for
from end_to_end.scraping import log_lines, metrics_url, scrape
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import array_service_pb2, array_service_pb2_grpc, kernel_service_pb2_grpc


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("impatient") / "log"


@pytest.fixture(scope="module")
def impatient_server(log: Path) -> Iterator[ServerProcess]:
    with running_server(
        "--stream-idle-s", "1", "--metrics-port", "0", devices=1, log=log, why="it waits for no stalled caller"
    ) as running:
        yield running


@pytest.fixture
def impatient(impatient_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server that waits a second for the next message of a call."""
    with left_empty(impatient_server) as server:
        yield server


def refusals(log: Path) -> float:
    """The number of calls that ended by stalling, on which metrics and log agree."""
    lines = sum(line.get("reason") == "STREAM_IDLE" for line in log_lines(log))
    counted = scrape(metrics_url(log)).total("shardcall_failed_calls_total", reason="STREAM_IDLE")
    return counted if counted == lines else -1.0


STALLS: dict[str, Callable[[grpc.Channel, Callable[..., Iterator[Any]]], object]] = {
    "operand": lambda channel, silence: next(
        kernel_service_pb2_grpc.KernelServiceStub(channel).ExecuteStream(silence(header([1 << 20])), timeout=120)
    ),
    "question": lambda channel, silence: channel.stream_unary("/shardcall.v1.ServerInfoService/GetUsage")(
        silence(), timeout=120
    ),
}


@pytest.mark.parametrize("stall", STALLS.values(), ids=STALLS)
def test_a_caller_that_sends_nothing_gets_an_error(impatient, log, silence, stall):
    before = refusals(log)
    with open_channel(impatient.address) as channel, pytest.raises(grpc.RpcError) as caught:
        stall(channel, silence)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details() == (
        "the caller sent nothing for 1 s, the longest that the server waits; repeat the call, or start the server with "
        "a larger --stream-idle-s (STREAM_IDLE)"
    )
    wait_for(lambda: refusals(log) == before + 1)


def test_a_caller_that_reads_nothing_gets_an_error(impatient, log):
    before = refusals(log)
    with sc.connect(impatient.address) as client, open_channel(impatient.address, SMALL_WINDOW) as channel:
        array = client.put(np.zeros((4096, 1024)))  # 32 MiB: far more than a connection has on its way
        get = array_service_pb2.GetArrayRequest(handle=bytes.fromhex(array.handle))
        stream = array_service_pb2_grpc.ArrayServiceStub(channel).GetArray(get, timeout=120)
        next(stream)
        wait_for(lambda: refusals(log) == before + 1)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.details().startswith("the caller took none of the results for 1 s")
