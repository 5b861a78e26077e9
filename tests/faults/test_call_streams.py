"""Call streams whose clients send too much, read nothing, cancel or lose their token: other calls stay right."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import SMALL_WINDOW, call, open_channel, token_of
from end_to_end.processes import holds_nothing, left_empty, wait_for
from faults import slow_kernel
from faults.gauges import MIB, AllowedGrowth, Gauges, drift_report, growth
from faults.raw_call_stream import RawCallStream, cancel, delete, diff_of, error_info, prepare, reason, result, run
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall.v1 import mesh_pb2
from shardcall_core.wire import token_file

X = np.arange(8.0) ** 2
DIFFERENCE = np.diff(X).tolist()
WINDOW = 1024
"""The server's limit of unanswered calls of a stream."""


@pytest.fixture(scope="module")
def streaming_server() -> Iterator[ServerProcess]:
    with running_server(devices=2) as running:
        yield running


@pytest.fixture
def streaming(streaming_server: ServerProcess) -> Iterator[ServerProcess]:
    """A server that no test ends."""
    with left_empty(streaming_server) as server:
        yield server


@dataclass(frozen=True)
class PrivateServer:
    """A server of one device which tests in turn change, and what they change it by.

    Attributes:
        server: the server.
        tokens: its token file.
        compile_now: what compilations of its kernel ``slow_to_compile`` wait for.
    """

    server: ServerProcess
    tokens: Path
    compile_now: Path

    def add_bob(self) -> token_file.Entry:
        """Gives a principal "bob" a new token; returns it when the server knows it."""
        bob = token_file.Entry.make("bob", ["run"])
        token_file.replace(str(self.tokens), [*self._others(), bob])
        wait_for(lambda: self._knows(bob))
        return bob

    def remove_bob(self) -> None:
        token_file.replace(str(self.tokens), self._others())

    def _others(self) -> list[token_file.Entry]:
        return [entry for entry in token_file.read(str(self.tokens)) if entry.name != "bob"]

    def _knows(self, entry: token_file.Entry) -> bool:
        with open_channel(self.server.address, token=entry.token) as channel, RawCallStream(channel) as stream:
            stream.send(diff_of(8), run(0, X))
            wait_for(lambda: 0 in stream.answers or stream.rpc.done())
            return 0 in stream.answers


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    folder = tmp_path_factory.mktemp("own")
    tokens = folder / "state" / "token"
    token_file.create(str(tokens), token_file.read(os.environ[token_file.FILE_VARIABLE]))
    flags = ("--token-file", str(tokens), "--max-streamed-bytes", str(MIB), "--lease-s", "1")
    with pytest.MonkeyPatch.context() as environment:
        compile_now = slow_kernel.install(folder, environment)
        with running_server(*flags, devices=1) as running:
            yield PrivateServer(running, tokens, compile_now)


@pytest.fixture
def private(module_server: PrivateServer) -> Iterator[PrivateServer]:
    module_server.compile_now.unlink(missing_ok=True)
    with left_empty(module_server.server):
        yield module_server


@pytest.fixture
def channel(streaming: ServerProcess) -> Iterator[grpc.Channel]:
    with open_channel(streaming.address) as opened:
        yield opened


def test_thousands_of_calls_in_flight_are_answered_or_refused_by_the_limit(streaming, channel, full, figure):
    calls = 10_000 if full else 3 * WINDOW
    before = Gauges.of(streaming.process.pid, 0.0).memory_bytes
    with RawCallStream(channel) as stream:
        stream.send(diff_of(8))
        for first in range(0, calls, 100):
            stream.send(*(run(number, X) for number in range(first, min(first + 100, calls))))
        wait_for(lambda: len(stream.answers) == calls or stream.rpc.done())
        refused = [answer for answer in stream.answers.values() if reason(answer)]
        for answer in refused:
            assert reason(answer) == "QUOTA_EXCEEDED"
            assert error_info(answer).metadata["limit"] == "max_streamed_calls"
        for answer in stream.answers.values():
            assert reason(answer) or result(answer).tolist() == DIFFERENCE
        if stream.rpc.done():
            assert stream.rpc.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "max_streamed_calls" in stream.rpc.details()
        else:
            stream.send(run(calls, X))
            assert result(stream.answer(calls)).tolist() == DIFFERENCE
        grown = Gauges.of(streaming.process.pid, 0.0).memory_bytes - before
        figure(f"{len(stream.answers)} answers, {len(refused)} refused; the front end grew by {grown / MIB:.0f} MiB")
        assert grown < 256 * MIB


def test_a_reader_that_stalls_uses_bounded_memory_and_blocks_no_other_stream(streaming, channel, figure):
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
    figure(f"the front end grew by {grown / MIB:.0f} MiB")
    assert grown < 512 * MIB


def test_operands_beyond_the_limit_of_bytes_are_refused_by_its_name(private):
    server = private.server
    (worker,) = server.worker_pids()
    x = np.arange(64.0 * 1024)
    with open_channel(server.address) as channel, RawCallStream(channel) as stream:
        stream.send(diff_of(x.size), run(0, x))
        assert np.array_equal(result(stream.answer(0)), np.diff(x))
        os.kill(worker, signal.SIGSTOP)
        try:
            for number in range(1, 4):
                stream.send(run(number, x))
            refused = stream.answer(3)
        finally:
            os.kill(worker, signal.SIGCONT)
        assert reason(refused) == "QUOTA_EXCEEDED"
        assert error_info(refused).metadata["limit"] == "max_streamed_bytes"
        for number in (1, 2):
            assert np.array_equal(result(stream.answer(number)), np.diff(x))


def test_calls_cancelled_at_any_moment_are_answered_once_and_leave_nothing(streaming, channel, times, figure):
    chance, met = random.Random(17), Counter[str]()
    with RawCallStream(channel) as stream:
        stream.send(diff_of(8))
        for number in range(times(5000)):
            stream.send(run(number, X))
            if chance.random() < 0.5:
                time.sleep(chance.random() ** 2 * 0.01)  # the moment is under test here
            stream.send(cancel(number))
        for number in range(times(5000)):
            answer = stream.answer(number)
            met[reason(answer) or "OK"] += 1
            assert reason(answer) or result(answer).tolist() == DIFFERENCE
    figure(f"{dict(met)}")
    assert set(met) <= {"CANCELLED", "OK"}


def test_streams_that_end_at_any_moment_leave_nothing(private, times):
    """Their calls keep arrays under handles that the client chose."""
    server, chance = private.server, random.Random(18)
    with open_channel(server.address) as channel, sc.connect(server.address) as client:
        _leave_streams(channel, chance, times(200))
        wait_for(lambda: holds_nothing(client) and not client.usage().calls)


def _leave_streams(channel: grpc.Channel, chance: random.Random, count: int) -> None:
    for number in range(count):
        with RawCallStream(channel) as stream:
            handles = [chance.randbytes(16) for _ in range(16)]
            lease = chance.randbytes(16)
            stream.send(prepare(0, call("add"), (8,), (8,), keep_results=True, lease_id=lease))
            stream.send(run(0, X, X, result_handles=handles[:1]))
            stream.send(prepare(1, call("add"), (8,), (8,), keep_results=True, lease_id=lease))
            for i, (before, after) in enumerate(itertools.pairwise(handles), 1):
                stream.send(run(i, before, X, slot=1, result_handles=[after]))
            time.sleep(chance.random() ** 2 * 0.05 if number else 0.0)  # the moment is under test here
            stream.send(delete(*handles))
            if chance.random() < 0.5:
                stream.half_close()


def test_a_compilation_delays_no_other_call_of_its_stream(private):
    with open_channel(private.server.address) as channel, RawCallStream(channel) as stream:
        stream.send(diff_of(8), run(0, X))
        stream.answer(0)
        stream.send(prepare(1, call("slow_to_compile"), (8,)), run(1, X, slot=1))
        try:
            for number in range(2, 50):
                stream.send(run(number, X))
                assert result(stream.answer(number)).tolist() == DIFFERENCE
            assert 1 not in stream.answers
        finally:
            private.compile_now.touch()
        assert result(stream.answer(1)).tolist() == X.tolist()


def test_programs_that_take_long_delay_no_other_client_and_no_other_connection(private):
    """Eight programs wait for the compiler; new ones of others are compiled meanwhile."""
    bob = private.add_bob()
    address = private.server.address
    with (
        sc.connect(address) as ann,
        sc.connect(address) as ann_again,
        sc.connect(address, token=bob.token) as other,
        ThreadPoolExecutor(8) as pool,
    ):
        arrays = [np.arange(size) * 1.5 for size in range(20, 28)]
        slow = [pool.submit(ann.call, "slow_to_compile", array) for array in arrays]
        try:
            for size in range(300, 304):
                for client in (other, ann_again):
                    assert client.flip(np.arange(size), axis=0).array[0] == size - 1
            assert not any(future.done() for future in slow)
        finally:
            private.compile_now.touch()
        for array, future in zip(arrays, slow, strict=True):
            assert future.result().array.tolist() == array.tolist()
    private.remove_bob()


def test_prepared_calls_and_waiting_operands_are_in_the_budget_of_their_client(private, figure):
    """A stream with 200 slots of 40 KiB, and calls whose program is not compiled yet."""
    size, slots, waiting = 40 << 10, 200, 12
    specs = [mesh_pb2.OptionalPartitionSpec()] * 60
    with sc.connect(private.server.address) as client, open_channel(private.server.address) as channel:
        with RawCallStream(channel) as stream:
            message = call("diff", {"text": "x" * 4000} | {f"parameter {i}": "y" * 620 for i in range(56)})
            message.in_specs.extend(specs)
            assert abs(message.ByteSize() - size) < size / 8
            for slot in range(1, slots + 1):
                stream.send(prepare(slot, message, (8,)))
            wait_for(lambda: client.usage().bytes_in_use > 7 * size * slots)
            figure(f"{slots * size >> 20} MiB of prepared calls count as {client.usage().bytes_in_use >> 20}")
            stream.send(*(prepare(slot, call("diff"), (8,)) for slot in range(1, slots + 1)))
            wait_for(lambda: client.usage().bytes_in_use == 0)
            stream.send(prepare(0, call("slow_to_compile"), (8_000,)))
            for number in range(waiting):
                stream.send(run(number, np.ones(8_000), slot=0))
            wait_for(lambda: client.usage().bytes_in_use >= 64_000 * waiting - 256 * 1024)
            private.compile_now.touch()
            for number in range(waiting):
                assert result(stream.answer(number)).tolist() == [1.0] * 8_000
        wait_for(lambda: client.usage().bytes_in_use == 0)


def test_slots_are_assigned_again_and_earlier_calls_keep_theirs(streaming, channel, times, full):
    """600 kinds of calls in 250 slots; sent together, so that assignments overtake the calls before them."""
    calls, slots = times(600), times(250)
    sizes = [2 + i % (50 if full else 6) for i in range(calls)]  # each is compiled
    with RawCallStream(channel) as stream:
        for i, size in enumerate(sizes):
            axis = call("diff", {"axis": 0, "n": 1 + i % 2})
            stream.send(prepare(i % slots, axis, (size,)), run(i, np.arange(size) ** 2.0, slot=i % slots))
        for i, size in enumerate(sizes):
            expected = np.diff(np.arange(size) ** 2.0, n=1 + i % 2)
            assert result(stream.answer(i)).tolist() == expected.tolist()
        stream.send(run(calls, X, slot=slots - 1, timeout_seconds=-1.0))
        assert reason(stream.answer(calls)) == "MALFORMED_REQUEST"


def test_handles_for_results_that_do_not_stay_are_refused_and_nothing_waits_for_them(channel):
    handle = bytes(range(16))
    with RawCallStream(channel) as stream:
        stream.send(diff_of(8), prepare(1, call("negative"), ()))
        stream.send(run(0, X, result_handles=[handle]), run(1, handle, slot=1))
        assert reason(stream.answer(0)) == "MALFORMED_REQUEST"
        assert reason(stream.answer(1)) == "ARRAY_LOST"


def test_a_removed_token_ends_its_streams_and_no_other(private, figure):
    bob = private.add_bob()
    with (
        open_channel(private.server.address, token=bob.token) as removed,
        open_channel(private.server.address) as kept,
        RawCallStream(removed) as busy,
        RawCallStream(removed) as idle,
        RawCallStream(kept) as other,
    ):
        for stream in (busy, idle, other):
            stream.send(diff_of(8), run(0, X))
            stream.answer(0)
        private.remove_bob()
        began = time.monotonic()
        for number in itertools.count(1):
            if busy.rpc.done():
                break
            busy.send(run(number, X))
            wait_for(lambda number=number: number in busy.answers or busy.rpc.done())
        assert idle.wait_ended() is grpc.StatusCode.UNAUTHENTICATED
        figure(f"both streams ended within {time.monotonic() - began:.2f} s of the change of the file")
        assert busy.wait_ended() is grpc.StatusCode.UNAUTHENTICATED
        other.send(run(1, X))
        assert result(other.answer(1)).tolist() == DIFFERENCE


def test_a_removed_token_and_a_drain_end_streams_whose_clients_do_nothing(tmp_path, server_factory):
    """The thread that sends a stream's answers waits for the client, and holds one of the server's two streams."""
    path = tmp_path / "state" / "token"
    user = token_file.Entry.make(token_file.user_name(), token_file.SCOPES)
    bob, carol = (token_file.Entry.make(name, ["run"]) for name in ("bob", "carol"))
    token_file.create(str(path), [user, bob, carol])
    server = server_factory("--token-file", str(path), "--max-call-streams", "2", devices=1)
    large = np.zeros(64 << 10)
    with (
        open_channel(server.address, SMALL_WINDOW, token=bob.token) as removed,
        open_channel(server.address, token=carol.token) as kept,
        open_channel(server.address, token=user.token) as owners,
        RawCallStream(removed) as stalled,
        RawCallStream(owners) as idle,
    ):
        idle.send(diff_of(8), run(0, X))
        idle.answer(0)
        stalled.send(diff_of(large.size), run(0, large))
        stalled.answer(0)
        stalled.reads.clear()
        for number in range(1, 60):
            stalled.send(run(number, large))

        served: list[RawCallStream] = []

        def is_served() -> bool:
            with contextlib.ExitStack() as streams:
                stream = streams.enter_context(RawCallStream(kept))
                stream.send(diff_of(8), run(0, X))
                wait_for(lambda: 0 in stream.answers or stream.rpc.done())
                if 0 in stream.answers:
                    streams.pop_all()
                    served.append(stream)
            return bool(served)

        assert not is_served()
        token_file.replace(str(path), [user, carol])
        wait_for(is_served)
        stalled.reads.set()
        assert stalled.wait_ended() is grpc.StatusCode.UNAUTHENTICATED
        with served[0] as busy, sc.connect(server.address, token=user.token, call_stream=False) as client:
            _drain(server, client, idle, busy)


def _drain(server: ServerProcess, client: sc.Client, idle: RawCallStream, busy: RawCallStream) -> None:
    """The server waits for no open stream, and answers the calls of all."""
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    busy.send(*(run(number, X) for number in range(1, 33)))
    wait_for(lambda: client.usage().calls == 32)
    server.process.send_signal(signal.SIGTERM)
    assert idle.wait_ended() is grpc.StatusCode.OK
    assert idle.draining
    wait_for(lambda: busy.draining)
    os.kill(worker, signal.SIGCONT)
    for number in range(1, 33):
        assert result(busy.answer(number)).tolist() == DIFFERENCE
    assert server.process.wait(120) == 0


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


@pytest.mark.long
def test_memory_stays_flat_during_two_hundred_thousand_calls(streaming, channel, times, figure):
    calls, frame = times(200_000), 100
    samples: dict[int, list[Gauges]] = {pid: [] for pid in (streaming.process.pid, *streaming.worker_pids())}
    began = time.monotonic()
    with RawCallStream(channel) as stream:
        stream.send(diff_of(8))
        for first in range(0, calls, frame):
            stream.send(*(run(number, X, request_id=f"flat-{number}") for number in range(first, first + frame)))
            wait_for(lambda: len(stream.answers) == frame or stream.rpc.done())
            assert all(result(answer).tolist() == DIFFERENCE for answer in stream.answers.values())
            stream.answers.clear()
            for pid, taken in samples.items():
                taken.append(Gauges.of(pid, time.monotonic() - began))
    figure(f"{calls / (time.monotonic() - began):.0f} calls per second by one stream")
    for pid, taken in samples.items():
        figure(f"{'front end' if pid == streaming.process.pid else 'worker'}: {drift_report(taken)}")
        assert growth(taken, AllowedGrowth()) == []


def test_calls_of_a_stream_wait_for_the_mesh(private):
    server = private.server
    (killed,) = server.worker_pids()
    with open_channel(server.address) as channel, RawCallStream(channel) as stream:
        stream.send(diff_of(8), run(0, X))
        stream.answer(0)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: killed not in server.worker_pids())
        stream.send(*(run(number, X) for number in range(1, 20)))
        met = Counter(reason(stream.answer(number)) for number in range(1, 20))
        assert set(met) <= {"", "MESH_RESTARTED"}
        stream.send(run(20, X))
        assert reason(stream.answer(20)) in {"", "MESH_RESTARTED"}
        stream.send(run(21, X))
        assert result(stream.answer(21)).tolist() == DIFFERENCE
