"""Callers that leave, stall or run out of time in any phase: nothing is left of them, and other calls continue."""

import itertools
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

import grpc
import numpy as np
import pytest
from end_to_end.messages import SMALL_WINDOW, call, execute, header, mesh, open_channel, operand, spec, token_of
from end_to_end.processes import X, left_empty, stopped, wait_for
from faults import slow_kernel
from faults.callers import beside_a_canary, is_quiet, settles
from faults.gauges import MIB
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import array_pb2, kernel_service_pb2, kernel_service_pb2_grpc

pytestmark = pytest.mark.long

Stub = kernel_service_pb2_grpc.KernelServiceStub
ROWS = itertools.count(100)
"""Shapes that were not compiled yet."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the server's log and the file that compilations of its kernel ``slow_to_compile`` wait for."""
    return tmp_path_factory.mktemp("leaving")


@pytest.fixture(scope="module")
def leaving_server(folder: Path) -> Iterator[ServerProcess]:
    flags = ("--max-launched-calls", "1", "--max-concurrent-calls", "400")
    with pytest.MonkeyPatch.context() as environment:
        slow_kernel.install(folder, environment)
        with running_server(*flags, devices=2, log=folder / "log", why="it compiles slowly") as running:
            yield running


@pytest.fixture
def leaving(leaving_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server of two devices with slots for many calls, which run on the mesh one at a time."""
    with left_empty(leaving_server) as server:
        yield server


def product(rows: int, **fields: object) -> kernel_service_pb2.ExecuteRequest:
    """A product of a column and a row: small operands, a result of rows x rows."""
    asked = call("matmul", mesh=mesh(x=2), in_specs=[spec("x", None), spec(None, None)], out_specs=[spec("x", None)])
    column, row = np.arange(float(rows))[:, None], np.ones((1, rows))
    return kernel_service_pb2.ExecuteRequest(call=asked, operands=[operand(column), operand(row)], **fields)


def streamed(stub: Stub, rows: int) -> grpc.Future:
    return stub.ExecuteStream(iter([kernel_service_pb2.ExecuteStreamRequest(header=product(rows))]), timeout=60)


def receiving(stub: Stub, stack: ExitStack) -> grpc.Future:
    """An upload that stops in its middle."""
    half = kernel_service_pb2.ExecuteStreamRequest(chunk=array_pb2.TensorChunk(data=bytes(MIB)))
    rest = SimpleQueue[None]()
    stack.callback(rest.put, None)
    return stub.ExecuteStream(chain([header([4, MIB // 8]), half], iter(rest.get, None)), timeout=60)


def compiling(stub: Stub, stack: ExitStack) -> grpc.Future:
    return stub.Execute.future(execute(operand(np.arange(float(next(ROWS))))), timeout=60)


def queued(stub: Stub, stack: ExitStack) -> grpc.Future:
    for before in [streamed(stub, 512) for _ in range(3)]:
        stack.callback(before.cancel)
    return streamed(stub, 512)


def executing(stub: Stub, stack: ExitStack) -> grpc.Future:
    return streamed(stub, 1024)


def sending(stub: Stub, stack: ExitStack) -> grpc.Future:
    stream = streamed(stub, 1024)
    has_begun(stream)
    return stream


def has_begun(stream: grpc.Future) -> bool:
    """Waits for a stream's header; returns False where a limit refused it."""
    try:
        return bool(next(stream).WhichOneof("message") == "header")
    except grpc.RpcError:
        if stream.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False


@pytest.mark.parametrize("phase", [receiving, compiling, queued, executing, sending])
def test_calls_cancelled_at_any_moment_leave_nothing(leaving, phase, figure):
    chance = random.Random(phase.__name__)
    ended: set[str] = set()

    def leave(stub: Stub, after_s: float) -> None:
        with ExitStack() as stack:
            leaver = phase(stub, stack)
            threading.Event().wait(after_s)  # the moment is under test here
            leaver.cancel()
            ended.add(leaver.code().name)

    with (
        open_channel(leaving.address) as channel,
        beside_a_canary(leaving, figure, devices=2, token=token_of("guest")),
        ThreadPoolExecutor(8) as pool,
    ):
        stub = Stub(channel)
        list(streamed(stub, 512))
        list(streamed(stub, 1024))
        moments = [chance.random() ** 2 * 0.2 for _ in range(1000)]
        for one in [pool.submit(leave, stub, moment) for moment in moments]:
            one.result(120)
    assert ended <= {"CANCELLED", "OK", "RESOURCE_EXHAUSTED"}
    settles(leaving)


def test_deadlines_of_a_tenth_of_a_second_against_a_compilation_that_takes_longer(leaving, folder):
    x = X
    with (
        sc.connect(leaving.address) as streaming,
        sc.connect(leaving.address, call_stream=False) as unary,
        sc.connect(leaving.address) as patient,
        ThreadPoolExecutor(11) as pool,
    ):
        first = pool.submit(patient.call, "slow_to_compile", x, timeout=120)
        wait_for(lambda: patient.usage().calls == 1)

        def hurry(number: int) -> None:
            with pytest.raises(sc.DeadlineExceededError):
                (streaming, unary)[number % 2].call("slow_to_compile", x, timeout=0.1)

        try:
            list(pool.map(hurry, range(100)))
        finally:
            slow_kernel.signal_file(folder).touch()
        np.testing.assert_array_equal(first.result(120).array, x)
        for client in (streaming, unary):
            assert client.call("slow_to_compile", x).plan.kernel == "slow_to_compile"
        wait_for(lambda: is_quiet(patient))
    wait_for(lambda: '"event": "compiled"' in (folder / "log").read_text())
    events = [json.loads(line) for line in (folder / "log").read_text().splitlines() if line.endswith("}")]
    compiled = [event["kernel"] for event in events if event["event"] == "compiled"]
    assert compiled.count("slow_to_compile") == 1


def test_many_dead_readers_block_no_others(leaving, figure):
    with open_channel(leaving.address, SMALL_WINDOW) as channel, ExitStack() as stack:
        stub, dead = Stub(channel), []
        list(streamed(stub, 1024))
        for _ in range(100):
            stream = streamed(stub, 1024)
            stack.callback(stream.cancel)
            assert has_begun(stream)
            dead.append(stream)
        with beside_a_canary(leaving, figure, devices=2, token=token_of("guest")) as canary:
            wait_for(lambda: len(canary.ended) > 500)
    settles(leaving)


def test_a_call_that_leaves_the_queue_is_out_of_it_at_once(leaving):
    """On a stuck mesh, calls that wait end at their deadlines, and cancelled calls end at once."""
    with sc.connect(leaving.address) as client, open_channel(leaving.address) as channel:
        client.diff(X, axis=0)
        stub = Stub(channel)
        stub.Execute(execute(operand(np.arange(6.0))))
        with stopped(leaving):
            first = stub.Execute.future(execute(operand(np.arange(6.0))), timeout=60)
            wait_for(lambda: client.usage().program_device_bytes > 0)
            waiting = [stub.Execute.future(execute(operand(np.arange(6.0))), timeout=60) for _ in range(5)]
            wait_for(lambda: client.usage().queued_calls == 5)
            for one in waiting[1:]:
                one.cancel()
            wait_for(lambda: client.usage().queued_calls == 1)
            with pytest.raises(sc.DeadlineExceededError, match="waiting for the mesh"):
                client.diff(X, axis=0, timeout=1.0)
            assert client.usage().queued_calls == 1
        for one in (first, waiting[0]):
            assert np.frombuffer(one.result().results[0].inline.data).tolist() == [1.0] * 5
        wait_for(lambda: is_quiet(client))
