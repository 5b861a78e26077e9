"""A worker or a program that is stuck: noticed, stopped, replaced, and its callers notified."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.messages import open_channel
from end_to_end.processes import X, computing, wait_for
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
