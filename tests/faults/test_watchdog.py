"""Workers and programs that are stuck are stopped; a program that ended the mesh three times is refused."""

import asyncio
import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.messages import open_channel, token_of
from end_to_end.processes import X, computing, wait_for
from faults import faulty_kernels
from faults.long_programs import SIGNAL, WINDOW, compile_long, convolve, the_worker, works
from grpc_health.v1 import health_pb2, health_pb2_grpc
from servers import ServerProcess, alive

import shardcall as sc
from shardcall import aio

pytestmark = pytest.mark.long

SHORTER = np.ones(1 << 14, np.float32)  # with SIGNAL: some seconds


def test_a_stopped_worker_is_noticed_and_replaced(server_factory, figure):
    server = server_factory("--worker-silence-s", "3", devices=2, why="its worker stops")
    with sc.connect(server.address) as client, open_channel(server.address) as channel:
        works(client)
        health = health_pb2_grpc.HealthStub(channel)
        states = health.Watch(health_pb2.HealthCheckRequest(service="shardcall.v1.KernelService"), timeout=300)
        assert next(states).status == health_pb2.HealthCheckResponse.SERVING
        worker = the_worker(server)
        began = time.monotonic()
        os.kill(worker, signal.SIGSTOP)
        result = client.diff(X, axis=0, timeout=300)  # repeated by the client
        figure(f"the caller had its answer after {time.monotonic() - began:.1f} s")
        np.testing.assert_array_equal(result.array, np.diff(X, axis=0))
        assert not alive(worker)
        assert next(states).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert next(states).status == health_pb2.HealthCheckResponse.SERVING
        mesh = client.usage().mesh
        assert mesh.ready
        assert mesh.restarts >= 1
        assert mesh.last_exit_reason.startswith("the worker did not answer for ")
        assert 0 < mesh.ready_seconds < mesh.seconds_since_exit


def leave(server: ServerProcess) -> None:
    """Calls the long program, and cancels while it runs."""

    async def go() -> None:
        busy = computing(the_worker(server))
        async with aio.connect(server.address) as client:
            call = asyncio.create_task(client.convolve(SIGNAL, WINDOW))
            await asyncio.to_thread(wait_for, busy)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(go())


def run_out_of_time(server: ServerProcess) -> None:
    """Calls the long program with less time than it takes, and more than it waits."""
    with sc.connect(server.address) as client, pytest.raises(sc.DeadlineExceededError) as caught:
        convolve(client, timeout=3.0)
    assert caught.value.reason == "DEADLINE_EXCEEDED"


def test_a_program_whose_caller_has_gone_is_stopped_and_not_held_against_it(server_factory, figure):
    server = server_factory("--deadline-grace-s", "0.5", "--spare-worker", why="its programs are stopped")
    took = []
    with sc.connect(server.address) as client:
        compile_long(client)
        for restarts, go in enumerate([run_out_of_time, leave, leave, leave], 1):  # three may be held against it
            wait_for(lambda: client.usage().mesh.ready)
            compile_long(client)
            go(server)
            gone = time.monotonic()
            wait_for(lambda restarts=restarts: client.usage().mesh.restarts >= restarts)
            took.append(time.monotonic() - gone)
            reason = "running kernel convolve continued for 0.5 s after its caller had gone"
            assert client.usage().mesh.last_exit_reason == reason
            works(client)
    figure(f"stopped {min(took):.1f} to {max(took):.1f} s after the caller had gone, grace 0.5 s")


def test_a_call_that_left_while_another_runs_ends_nothing_before_its_launch(server_factory):
    server = server_factory("--deadline-grace-s", "0.5", why="its programs are stopped")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        compile_long(client)
        client.compile("convolve", sc.Array(SIGNAL.shape, "float32"), sc.Array(SHORTER.shape, "float32"))
        busy = computing(the_worker(server))
        running = pool.submit(client.convolve, SIGNAL, SHORTER, timeout=300)
        wait_for(busy)
        with pytest.raises(sc.DeadlineExceededError):
            convolve(client, timeout=0.5)
        np.testing.assert_array_equal(running.result(300).array[:3], [1, 2, 3])
        wait_for(lambda: client.usage().mesh.restarts >= 1)
        works(client)


def test_programs_that_were_together_when_a_worker_crashed_run_alone_before_one_is_refused(
    server_factory, tmp_path, monkeypatch
):
    faulty_kernels.install(tmp_path, monkeypatch)
    flags = ("--spare-worker", "--cache-dir", str(tmp_path / "cache"))
    server = server_factory(*flags, devices=1, why="its kernels abort")
    four, five = sc.Array(4, "float64"), sc.Array(5, "float64")
    x = np.arange(4.0)
    with (
        sc.connect(server.address, token=token_of("guest")) as guilty,
        sc.connect(server.address, token=token_of("owner")) as innocent,
        ThreadPoolExecutor(2) as pool,
    ):

        def both_at_once() -> list[Future[object]]:
            return [pool.submit(guilty.call, "aborting", x), pool.submit(innocent.compile, "ordinary", four)]

        works(guilty)
        calls = both_at_once()
        wait_for(lambda: all((tmp_path / f"{name} began").exists() for name in ("aborting", "ordinary")))
        (tmp_path / "abort").touch()
        for call in calls:
            with pytest.raises(sc.MeshRestartedError) as restarted:
                call.result(300)
            assert restarted.value.is_suspect
        (tmp_path / "finish").touch()
        for _ in range(3):
            aborting, ordinary = both_at_once()
            with pytest.raises(sc.MeshRestartedError):
                aborting.result(300)
            ordinary.result(300)
        with pytest.raises(sc.ProgramRefusedError, match="the mesh ended 3 times because of this program"):
            guilty.call("aborting", x)
        with pytest.raises(sc.ProgramRefusedError, match=r"for another \d+ s, only programs that have run") as caught:
            guilty.compile("aborting", five)
        assert 0 < int(caught.value.metadata["ends_in_seconds"]) <= 600
        works(guilty)
        innocent.compile("ordinary", five)


def kill_while_it_computes(server: ServerProcess, client: sc.Client, number: signal.Signals) -> str:
    """Sends a signal to a worker that runs the long program; returns the reason of its exit."""
    compile_long(client)
    worker = the_worker(server)
    busy = computing(worker)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(convolve, client)
        wait_for(busy)
        os.kill(worker, number)
        with pytest.raises(sc.MeshRestartedError):
            call.result(300)
    works(client)
    return client.usage().mesh.last_exit_reason


def test_a_program_that_crashes_its_worker_three_times_is_refused_and_one_that_is_killed_is_not(server_factory):
    """More kills than one program may cause crashes."""
    server = server_factory(why="its worker crashes")
    with sc.connect(server.address, retries=False) as client:
        for _ in range(9):
            assert kill_while_it_computes(server, client, signal.SIGKILL) == "ended by signal 9 (SIGKILL)"
        for _ in range(3):
            reason = kill_while_it_computes(server, client, signal.SIGSEGV)
            assert reason == "ended by signal 11 (SIGSEGV) while running kernel convolve"
        with pytest.raises(sc.ProgramRefusedError):
            convolve(client)
        works(client)


def test_a_program_that_took_too_long_three_times_is_refused_and_no_other(server_factory):
    server = server_factory("--max-execute-s", "2", devices=2, why="its programs take too long")
    with sc.connect(server.address) as client, sc.connect(server.address, token=token_of("guest")) as other:
        limits = client.server_info().limits
        assert (limits.max_execute_seconds, limits.max_compile_seconds) == (2, 300)
        for _ in range(3):
            with pytest.raises(sc.DeadlineExceededError, match="longest that this server allows") as exceeded:
                convolve(client)
            assert exceeded.value.reason == "EXECUTE_LIMIT"
        restarts = client.usage().mesh.restarts
        with pytest.raises(sc.ProgramRefusedError) as caught:
            convolve(client)
        assert caught.value.reason == "PROGRAM_REFUSED"
        other.convolve(SIGNAL[:1000], WINDOW[:10])
        works(other)
        mesh = client.usage().mesh
        assert (mesh.restarts, mesh.last_exit_reason) == (restarts, "running kernel convolve took over 2 s")
