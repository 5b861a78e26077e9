"""The tests of `test_call_stream_shares.py` that take long."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import call, execute, open_channel, operand, token_of
from end_to_end.processes import left_empty, wait_for
from end_to_end.test_call_stream_shares import (
    CONNECTION,
    FLAGS,
    MIB,
    SEPARATE_CONNECTION,
    STREAMS,
    X,
    accepts_streams,
    stalled,
)
from faults import slow_kernel
from faults.raw_call_stream import RawCallStream, delete, diff_of, error_info, prepare, reason, result, run
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import kernel_service_pb2_grpc
from shardcall_core.wire.token_file import user_name

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def narrow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """A server with few slots, and the file that compilations of its kernel ``slow_to_compile`` wait for."""
    with pytest.MonkeyPatch.context() as environment:
        compile_now = slow_kernel.install(tmp_path_factory.mktemp("slow"), environment)
        with running_server(*FLAGS, devices=1, log=Path(os.devnull), why="its calls are few") as running:
            yield running, compile_now


@pytest.fixture
def narrow(narrow_server: tuple[ServerProcess, Path]) -> Iterator[ServerProcess]:
    with left_empty(narrow_server[0]) as server:
        yield server
        wait_for(lambda: all(accepts_streams(server, name) for name in (user_name(), "guest")))


@pytest.fixture
def compile_now(narrow_server: tuple[ServerProcess, Path]) -> Iterator[Path]:
    """The file that compilations of shapes of the test's own wait for."""
    file = narrow_server[1]
    file.unlink(missing_ok=True)
    yield file
    file.touch()


def test_a_call_waits_for_the_slots_of_the_call_stream_of_its_connection(narrow, compile_now):
    x = np.arange(16.0)  # of which no other test has compiled the program
    with (
        sc.connect(narrow.address) as client,
        open_channel(narrow.address, SEPARATE_CONNECTION, token=token_of("guest")) as channel,
        RawCallStream(channel) as busy,
    ):
        busy.send(prepare(1, call("slow_to_compile"), x.shape))
        busy.send(*(run(number, x, slot=1) for number in range(20)))
        wait_for(lambda: client.usage().calls == CONNECTION)
        stub = kernel_service_pb2_grpc.KernelServiceStub(channel)
        single = stub.Execute.future(execute(operand(X)), timeout=300)
        wait_for(lambda: single.done() or client.usage().calls == CONNECTION + 1)
        assert not single.done()
        compile_now.touch()
        assert len(single.result().results) == 1
        for number in range(20):
            assert result(busy.answer(number)).tolist() == x.tolist()


def test_a_call_short_of_memory_waits_for_the_deletions_ahead_of_it(narrow, compile_now):
    """The array is deleted once the call that uses it is launched, which compiles until then."""
    first, second = (bytes([number]) * 16 for number in (1, 2))
    keep = {"keep_results": True, "lease_id": b"a lease of this test"}
    with (
        sc.connect(narrow.address) as client,
        open_channel(narrow.address) as channel,
        RawCallStream(channel) as stream,
        client.put(np.ones((MIB // 8,))) as kept,
    ):
        handle = bytes.fromhex(kept.handle)
        stream.send(
            diff_of(8),
            prepare(1, call("slow_to_compile"), (MIB // 8,), keep_results=False),
            prepare(2, call("add"), (8,), (8,), **keep),
            run(0, handle, slot=1),
            run(1, X, X, slot=2, result_handles=[first]),  # no deletion is ahead of it
            delete(handle),
            run(2, X, X, slot=2, result_handles=[second]),
            run(3, X),
        )
        refused = stream.answer(1)
        assert reason(refused) == "RESIDENT_LIMIT", error_info(refused)
        assert result(stream.answer(3)).tolist() == np.diff(X).tolist()
        assert 2 not in stream.answers
        wait_for(lambda: client.usage().calls == 1)  # it holds no slot while it waits
        compile_now.touch()
        assert not reason(stream.answer(2))
        np.testing.assert_array_equal(client.get(second.hex()), X + X)
        assert reason(stream.answer(0)) in {"", "STREAM_REQUIRED"}
        stream.send(delete(second))
        wait_for(lambda: not client.usage().arrays)  # else its lease would keep it for a minute


def test_streams_have_separate_threads_whose_number_is_fixed(narrow):
    with ExitStack() as stack:
        client = stack.enter_context(sc.connect(narrow.address, call_stream=False))
        np.testing.assert_array_equal(client.diff(X).array, np.diff(X))
        before = threads(narrow)
        for _ in range(STREAMS):
            stack.enter_context(stalled(narrow, 100))
        wait_for(lambda: not client.usage().calls)
        for _ in range(20):  # on threads that streams do not take
            np.testing.assert_array_equal(client.diff(X).array, np.diff(X))
        assert threads(narrow) < before + 20, "300 calls wait; gRPC's own threads come and go"
        channel = stack.enter_context(open_channel(narrow.address))
        beyond = stack.enter_context(RawCallStream(channel))
        assert beyond.wait_ended().name == "RESOURCE_EXHAUSTED"
        with open_channel(narrow.address, token=token_of("guest")) as other, RawCallStream(other) as stream:
            stream.send(diff_of(8), run(0, X))
            assert result(stream.answer(0)).tolist() == np.diff(X).tolist()


def threads(server: ServerProcess) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/task"))
