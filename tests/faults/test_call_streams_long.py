"""Call streams of clients that leave or lose their token, of programs that compile, and of meshes that end."""

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
from end_to_end.messages import SMALL_WINDOW, call, open_channel
from end_to_end.processes import left_empty, wait_for
from faults import slow_kernel
from faults.gauges import MIB
from faults.raw_call_stream import RawCallStream, delete, diff_of, prepare, reason, result, run
from faults.test_call_streams import DIFFERENCE, X
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc
from shardcall.v1 import mesh_pb2
from shardcall_core.wire import token_file

pytestmark = pytest.mark.long


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
        with running_server(*flags, devices=1, why="its tokens, programs and worker change") as running:
            yield PrivateServer(running, tokens, compile_now)


@pytest.fixture
def private(module_server: PrivateServer) -> Iterator[PrivateServer]:
    module_server.compile_now.unlink(missing_ok=True)
    with left_empty(module_server.server):
        yield module_server


def test_streams_that_end_at_any_moment_leave_nothing(private):
    """Their calls keep arrays under handles that the client chose."""
    server, chance = private.server, random.Random(18)
    with open_channel(server.address) as channel, sc.connect(server.address) as client:
        _leave_streams(channel, chance, 200)
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


def test_prepared_calls_and_waiting_operands_are_in_the_budget_of_their_client(private):
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


def test_a_removed_token_and_a_drain_end_streams_whose_clients_do_nothing(tmp_path, server_factory):
    """The thread that sends a stream's answers waits for the client, and holds one of the server's two streams."""
    path = tmp_path / "state" / "token"
    user = token_file.Entry.make(token_file.user_name(), token_file.SCOPES)
    bob, carol = (token_file.Entry.make(name, ["run"]) for name in ("bob", "carol"))
    token_file.create(str(path), [user, bob, carol])
    server = server_factory("--token-file", str(path), "--max-call-streams", "2", devices=1, why="it drains")
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
