"""Call streams whose clients send too much, read nothing, cancel or lose their token: other calls stay right."""

import random
import time
from collections import Counter
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.messages import call, open_channel, token_of
from end_to_end.processes import left_empty, stopped
from faults.gauges import MIB, Gauges
from faults.raw_call_stream import RawCallStream, cancel, delete, diff_of, error_info, prepare, reason, result, run
from servers import ServerProcess

X = np.arange(8.0) ** 2
DIFFERENCE = np.diff(X).tolist()


@pytest.fixture
def streaming(exclusive_server: ServerProcess) -> Iterator[ServerProcess]:
    with left_empty(exclusive_server) as server:
        yield server


@pytest.fixture
def channel(streaming: ServerProcess) -> Iterator[grpc.Channel]:
    with open_channel(streaming.address) as opened:
        yield opened


def test_a_reader_that_stalls_uses_bounded_memory_and_blocks_no_other_stream(streaming, channel):
    """The answers are far larger than what gRPC buffers; they arrive when the client reads again."""
    x = np.arange(64.0 * 1024)
    before = Gauges.of(streaming.process.pid, 0.0).memory_bytes
    with RawCallStream(channel) as stalled, RawCallStream(channel) as other:
        stalled.reads.clear()
        stalled.send(diff_of(x.size))
        for number in range(100):
            stalled.send(run(number, x))
        other.send(diff_of(8))
        for number in range(100):
            other.send(run(number, X))
            assert result(other.answer(number)).tolist() == DIFFERENCE
        grown = Gauges.of(streaming.process.pid, 0.0).memory_bytes - before
        stalled.reads.set()
        for number in range(100):
            assert np.array_equal(result(stalled.answer(number)), np.diff(x))
    assert grown < 512 * MIB


def test_calls_cancelled_at_any_moment_are_answered_once_and_leave_nothing(channel):
    chance, met = random.Random(17), Counter[str]()
    with RawCallStream(channel) as stream:
        stream.send(diff_of(8))
        for number in range(200):
            stream.send(run(number, X))
            if chance.random() < 0.5:
                time.sleep(chance.random() ** 2 * 0.01)  # the moment is under test here
            stream.send(cancel(number))
        for number in range(200):
            answer = stream.answer(number)
            met[reason(answer) or "OK"] += 1
            assert reason(answer) or result(answer).tolist() == DIFFERENCE
    assert set(met) <= {"CANCELLED", "OK"}


def test_handles_for_results_that_do_not_stay_are_refused_and_nothing_waits_for_them(channel):
    handle = bytes(range(16))
    with RawCallStream(channel) as stream:
        stream.send(diff_of(8), prepare(1, call("negative"), ()))
        stream.send(run(0, X, result_handles=[handle]), run(1, handle, slot=1))
        assert reason(stream.answer(0)) == "MALFORMED_REQUEST"
        assert reason(stream.answer(1)) == "ARRAY_LOST"


def test_clients_share_no_numbers_slots_or_windows(streaming):
    with (
        open_channel(streaming.address, token=token_of("guest")) as first,
        open_channel(streaming.address, token=token_of("owner")) as second,
        RawCallStream(first) as one,
        RawCallStream(second) as other,
    ):
        one.send(diff_of(8))
        other.send(prepare(0, call("negative"), (8,)))
        for number in range(200):
            one.send(run(number, X), cancel(10_000 + number))
            other.send(run(number, X), cancel(10_000 + number))
        for number in range(200):
            assert result(one.answer(number)).tolist() == DIFFERENCE
            assert result(other.answer(number)).tolist() == (-X).tolist()
        handle = bytes(range(16))
        one.send(prepare(1, call("add"), (8,), (8,), keep_results=True, lease_id=b"one" * 6))
        one.send(run(1000, X, X, slot=1, result_handles=[handle]))
        assert not reason(one.answer(1000))
        other.send(prepare(1, call("negative"), ()), delete(handle))
        other.send(run(1000, handle, slot=1))
        assert reason(other.answer(1000)) == "ARRAY_LOST"
        one.send(prepare(2, call("negative"), (8,)), run(1001, handle, slot=2), delete(handle))
        assert result(one.answer(1001)).tolist() == (-2 * X).tolist()


def test_operands_beyond_the_limit_of_bytes_are_refused_by_its_name(limited_server):
    server = limited_server
    x = np.arange(64.0 * 1024)
    with open_channel(server.address) as channel, RawCallStream(channel) as stream:
        stream.send(diff_of(x.size), run(0, x))
        assert np.array_equal(result(stream.answer(0)), np.diff(x))
        with stopped(server):
            stream.send(*(run(number, x) for number in range(1, 4)))
            refused = stream.answer(3)
        assert reason(refused) == "QUOTA_EXCEEDED"
        assert error_info(refused).metadata["limit"] == "max_streamed_bytes"
        for number in (1, 2):
            assert np.array_equal(result(stream.answer(number)), np.diff(x))
