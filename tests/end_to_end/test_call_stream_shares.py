"""Shares of a server that call streams take: call slots, quotas and threads."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import SMALL_WINDOW, call, open_channel, token_of
from end_to_end.processes import left_empty, wait_for
from faults import slow_kernel
from faults.raw_call_stream import RawCallStream, cancel, delete, diff_of, error_info, prepare, reason, result, run
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall_core.wire.token_file import user_name

pytestmark = pytest.mark.long

X = np.arange(8.0) ** 2
COLUMN, ROW = np.arange(256.0)[:, None], np.arange(256.0)[None, :]
TABLE = COLUMN + ROW  # 512 KiB
MIB = 1 << 20
CLIENT, CONNECTION, STREAMS = 4, 3, 3
"""Call slots of one client and of one connection, and call streams of one client."""
SEPARATE_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
"""Options of a channel that has a connection of its own."""
FLAGS = (
    *("--max-concurrent-calls", "6", "--max-call-streams", "4"),
    *("--max-streamed-bytes", str(MIB), "--max-resident-bytes-per-client", str(MIB)),
)


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


def accepts_streams(server: ServerProcess, name: str) -> bool:
    """Returns True if a client may open as many streams as ever: those of a test end some time after their channel."""
    with open_channel(server.address, token=token_of(name)) as channel, ExitStack() as stack:
        streams = [stack.enter_context(RawCallStream(channel)) for _ in range(STREAMS)]
        for stream in streams:
            stream.send(diff_of(8), run(0, X))
            wait_for(lambda stream=stream: 0 in stream.answers or not stream.rpc.is_active())
        for stream in streams:
            stream.half_close()
        return all(0 in stream.answers for stream in streams)


@pytest.fixture
def compile_now(narrow_server: tuple[ServerProcess, Path]) -> Iterator[Path]:
    """The file that compilations of shapes of the test's own wait for."""
    file = narrow_server[1]
    file.unlink(missing_ok=True)
    yield file
    file.touch()


@contextmanager
def stalled(server: ServerProcess, count: int) -> Iterator[RawCallStream]:
    """A stream whose client reads nothing after its first answers, with as many calls of large results."""
    with open_channel(server.address, SMALL_WINDOW) as channel, RawCallStream(channel) as stream:
        stream.send(prepare(0, call("add"), COLUMN.shape, ROW.shape), run(0, COLUMN, ROW))
        stream.answer(0)
        stream.reads.clear()
        stream.send(*(run(number, COLUMN, ROW) for number in range(1, count + 1)))
        wait_for(lambda: len(stream.answers) > 1)
        yield stream


def test_calls_that_wait_for_their_client_to_read_hold_no_slot(narrow):
    """Other clients of the same principal are served; the calls are answered when the client reads again."""
    with sc.connect(narrow.address) as client, stalled(narrow, 40) as one, stalled(narrow, 40) as other:
        wait_for(lambda: not client.usage().calls)
        for number in range(20):
            np.testing.assert_array_equal(client.diff(X + number).array, np.diff(X))
        for stream in (one, other):
            stream.reads.set()
            for number in range(1, 41):
                np.testing.assert_array_equal(result(stream.answer(number)), TABLE)
        assert client.usage().calls == 0


def test_a_call_that_ends_while_its_client_does_not_read_has_no_slot_to_release(narrow):
    with sc.connect(narrow.address) as client, stalled(narrow, 40) as stream:
        wait_for(lambda: not client.usage().calls)
        stream.send(cancel(*range(1, 41)), run(41, COLUMN, ROW, timeout_seconds=0.1), run(42, COLUMN, ROW))
        np.testing.assert_array_equal(client.diff(X).array, np.diff(X))
        stream.reads.set()
        assert {reason(stream.answer(number)) for number in range(1, 41)} == {"", "CANCELLED"}
        assert reason(stream.answer(41)) in {"", "DEADLINE_EXCEEDED"}
        np.testing.assert_array_equal(result(stream.answer(42)), TABLE)
        wait_for(lambda: not client.usage().calls)


def test_streams_share_the_slots_of_their_client_and_leave_those_of_others(narrow, compile_now):
    """Calls that compile hold slots: those of a connection, then those of the client; others are served."""
    with (
        sc.connect(narrow.address) as client,
        open_channel(narrow.address, SEPARATE_CONNECTION, token=token_of("guest")) as first,
        open_channel(narrow.address, SEPARATE_CONNECTION, token=token_of("guest")) as second,
        RawCallStream(first) as busy,
        RawCallStream(first) as of_same_connection,
        RawCallStream(second) as of_same_client,
    ):
        client.diff(X)
        for stream in (busy, of_same_connection, of_same_client):
            stream.send(diff_of(8), prepare(1, call("slow_to_compile"), (8,)))
        busy.send(*(run(number, X, slot=1) for number in range(20)))
        wait_for(lambda: client.usage().calls == CONNECTION)
        of_same_connection.send(run(0, X))
        of_same_client.send(run(0, X))
        assert result(of_same_client.answer(0)).tolist() == np.diff(X).tolist()
        of_same_client.send(run(1, X, slot=1), run(2, X))
        wait_for(lambda: client.usage().calls == CLIENT)
        for _ in range(20):
            np.testing.assert_array_equal(client.diff(X).array, np.diff(X))
        assert not busy.answers
        assert not of_same_connection.answers
        assert of_same_client.answers.keys() == {0}
        compile_now.touch()
        for number in range(20):
            assert result(busy.answer(number)).tolist() == X.tolist()
        for stream, number in ((of_same_connection, 0), (of_same_client, 2)):
            assert result(stream.answer(number)).tolist() == np.diff(X).tolist()


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
