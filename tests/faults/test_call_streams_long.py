"""Call streams of clients that leave or lose their token, of programs that compile, and of workers that are killed."""

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from end_to_end.messages import SMALL_WINDOW, call, open_channel, token_of
from end_to_end.processes import left_empty, stop, wait_for
from faults import slow_kernel
from faults.gauges import MIB
from faults.raw_call_stream import RawCallStream, delete, diff_of, prepare, run
from faults.test_call_streams import X
from faults.token_servers import TokenServer
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall_core.wire import token_file

pytestmark = pytest.mark.long

CHAIN = 32


@pytest.fixture(scope="module")
def compile_now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that compilations of the server's kernel ``slow_to_compile`` wait for."""
    return slow_kernel.signal_file(tmp_path_factory.mktemp("private"))


@pytest.fixture(scope="module")
def server_for_all(compile_now: Path) -> Iterator[ServerProcess]:
    flags = ("--max-streamed-bytes", str(MIB), "--lease-s", "3", "--max-launched-calls", str(2 * CHAIN))
    with pytest.MonkeyPatch.context() as environment:
        slow_kernel.install(compile_now.parent, environment)
        with running_server(*flags, devices=1, why="its programs and worker change") as running:
            yield running


@pytest.fixture
def private(server_for_all: ServerProcess, compile_now: Path) -> Iterator[ServerProcess]:
    """A server of one device, whose worker a test may kill; it has another for the next."""
    compile_now.unlink(missing_ok=True)
    with sc.connect(server_for_all.address) as client:
        wait_for(lambda: client.usage().mesh.ready)
    with left_empty(server_for_all):
        yield server_for_all


def test_streams_that_end_at_any_moment_leave_nothing(private):
    """Their calls keep arrays under handles that the client chose."""
    chance = random.Random(18)
    with open_channel(private.address) as channel:
        for number in range(200):
            _leave_a_stream(channel, chance, at_once=number == 0)


def _leave_a_stream(channel: grpc.Channel, chance: random.Random, at_once: bool) -> None:
    with RawCallStream(channel) as stream:
        handles = [chance.randbytes(16) for _ in range(16)]
        lease = chance.randbytes(16)
        stream.send(prepare(0, call("add"), (8,), (8,), keep_results=True, lease_id=lease))
        stream.send(run(0, X, X, result_handles=handles[:1]))
        for i, (before, after) in enumerate(itertools.pairwise(handles), 1):
            stream.send(run(i, before, X, result_handles=[after]))
        time.sleep(0.0 if at_once else chance.random() ** 2 * 0.05)  # the moment is under test here
        stream.send(delete(*handles))
        if chance.random() < 0.5:
            stream.half_close()


def test_programs_that_take_long_delay_no_other_client_and_no_other_connection(private, compile_now):
    """Eight programs wait for the compiler; new ones of others are compiled meanwhile."""
    address = private.address
    with (
        sc.connect(address) as ann,
        sc.connect(address) as ann_again,
        sc.connect(address, token=token_of("guest")) as other,
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
            compile_now.touch()
        for array, future in zip(arrays, slow, strict=True):
            assert future.result().array.tolist() == array.tolist()


def test_a_removed_token_ends_a_stream_whose_client_does_nothing(tmp_path, server_factory):
    """The thread that sends a stream's answers waits for the client, and holds one of the server's two streams."""
    path = tmp_path / "state" / "token"
    token_file.create(str(path), [token_file.Entry.make(token_file.user_name(), token_file.SCOPES)])
    flags = ("--token-file", str(path), "--max-call-streams", "2")
    tokens = TokenServer(server_factory(*flags, devices=1, why="its tokens change"), path)
    server, user, carol, bob = tokens.server, tokens.user_token(), tokens.add("carol"), tokens.add("bob")
    large = np.zeros(64 << 10)
    with (
        open_channel(server.address, SMALL_WINDOW, token=bob) as removed,
        open_channel(server.address, token=carol) as kept,
        open_channel(server.address, token=user) as owners,
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

        def is_served() -> bool:
            with RawCallStream(kept) as stream:
                stream.send(diff_of(8), run(0, X))
                wait_for(lambda: 0 in stream.answers or stream.rpc.done())
                return 0 in stream.answers

        assert not is_served()
        tokens.remove("bob")
        wait_for(is_served)
        stalled.reads.set()
        assert stalled.wait_ended() is grpc.StatusCode.UNAUTHENTICATED


def is_launched(client: sc.Client) -> bool:
    """Returns whether the server has launched all of a chain that it launches before the mesh answers.

    These are all calls; or two if the program is slow, as any is that has not run or whose last run was held up: the
    third is queued, and the others wait for it without slots.
    """
    usage = client.usage()
    return (usage.calls, usage.queued_calls) in {(CHAIN, 0), (3, 1)}


@pytest.mark.parametrize("has_run", [True, False])
def test_a_submitted_chain_whose_worker_is_killed_fails_at_its_first_call_and_is_lost_at_the_rest(private, has_run):
    (worker,) = private.worker_pids()
    # The other client is there before the watchdog looks at the stopped worker; the server counts the calls.
    with sc.connect(private.address) as other, sc.connect(private.address, fuse=False) as client:
        x = client.put(np.ones(8))
        client.compile("add", x, 1.0)
        if has_run:
            client.submit("add", x, 1.0).get()
        stop(worker)
        chain = [client.submit("add", x, 1.0)]
        for _ in range(CHAIN - 1):
            chain.append(client.submit("add", chain[-1], 1.0))
        wait_for(lambda: is_launched(other))
        os.kill(worker, signal.SIGKILL)
        for array in reversed(chain[1:]):
            with pytest.raises(sc.ArrayLostError) as caught:
                array.get()
            assert isinstance(caught.value.__cause__, sc.MeshRestartedError)
        with pytest.raises(sc.MeshRestartedError, match=r"^add of float64"):
            chain[0].get()
        client.synchronize()  # the error was raised
        np.testing.assert_array_equal(client.submit("add", np.ones(4), 1.0), np.full(4, 2.0))  # a program of its own
