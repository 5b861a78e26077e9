"""A worker that is stuck: noticed, stopped, replaced; its callers told; what killed it again and again refused."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import ServerProcess
from end_to_end.messages import open_channel
from end_to_end.processes import X, alive, computing, until
from faults import slow_kernel
from grpc_health.v1 import health_pb2, health_pb2_grpc

import shardcall as sc

SIGNAL = np.ones(1 << 20, np.float32)
WINDOW = np.ones(1 << 17, np.float32)  # with SIGNAL: half a minute of a quiet machine
SHORTER = np.ones(1 << 14, np.float32)  # some seconds


def works(client: sc.Client) -> None:
    """Makes a small call, again if the mesh ended meanwhile, and looks at its result."""
    while True:
        try:
            result = client.diff(X, axis=0).array
        except sc.MeshRestartedError:
            continue
        np.testing.assert_array_equal(result, np.diff(X, axis=0))
        return


def convolve(client: sc.Client, timeout: float = 300.0) -> sc.Result:
    return client.convolve(SIGNAL, WINDOW, timeout=timeout)


def compile_long(client: sc.Client) -> None:
    client.compile("convolve", sc.Array(SIGNAL.shape, "float32"), sc.Array(WINDOW.shape, "float32"))


def the_worker(server: ServerProcess) -> int:
    (worker,) = server.worker_pids()
    return worker


def test_a_stopped_worker_is_noticed_and_replaced(own_server, figure):
    server = own_server("--worker-silence-s", "3")
    with sc.connect(server.address) as client, open_channel(server.address) as channel:
        works(client)
        health = health_pb2_grpc.HealthStub(channel)
        states = health.Watch(health_pb2.HealthCheckRequest(service="shardcall.v1.KernelService"), timeout=300)
        assert next(states).status == health_pb2.HealthCheckResponse.SERVING
        worker = the_worker(server)
        began = time.monotonic()
        os.kill(worker, signal.SIGSTOP)
        with pytest.raises(sc.MeshRestartedError):
            client.diff(X, axis=0, timeout=300)
        told = time.monotonic() - began
        works(client)
        figure(f"the caller was told after {told:.1f} s, the next answer came after {time.monotonic() - began:.1f} s")
        assert not alive(worker)
        assert next(states).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert next(states).status == health_pb2.HealthCheckResponse.SERVING
        mesh = client.usage().mesh
        assert (mesh.ready, mesh.restarts) == (True, 1)
        assert mesh.last_end_reason.startswith("the worker did not answer for ")
        assert 0 < mesh.ready_seconds < mesh.last_end_seconds


def test_a_program_over_the_limit_ends_and_calls_that_wait_are_served(own_server, figure):
    server = own_server("--max-execute-s", "6", "--max-launched-calls", "2")
    with sc.connect(server.address) as client, ThreadPoolExecutor(8) as pool:
        works(client)
        compile_long(client)
        info = client.server_info().limits
        assert (info.max_execute_seconds, info.max_compile_seconds) == (6, 300)
        busy = computing(the_worker(server))
        began = time.monotonic()
        first = pool.submit(convolve, client)
        until(busy)
        second = pool.submit(convolve, client)
        until(lambda: client.usage().calls == 2)
        small = [pool.submit(client.diff, X, axis=0, timeout=300) for _ in range(4)]
        with pytest.raises(sc.DeadlineExceededError, match="longest that this server allows") as caught:
            first.result(300)
        assert caught.value.reason == "EXECUTE_LIMIT"
        figure(f"stopped after {time.monotonic() - began:.1f} s, limit 6 s")
        with pytest.raises(sc.MeshRestartedError):
            second.result(300)
        for call in small:
            np.testing.assert_array_equal(call.result(300).array, np.diff(X, axis=0))
        assert client.usage().mesh.last_end_reason == "running kernel convolve took over 6 s"


def test_a_program_whose_caller_has_gone_is_stopped_and_not_held_against_it(own_server, figure):
    server = own_server("--deadline-grace-s", "1", "--spare-worker")
    took = []
    with sc.connect(server.address) as client:
        compile_long(client)
        for restarts in range(1, 5):
            until(lambda: client.usage().mesh.ready)
            with pytest.raises(sc.DeadlineExceededError) as caught:
                convolve(client, timeout=3.0)
            assert caught.value.reason == "DEADLINE_EXCEEDED"
            told = time.monotonic()
            until(lambda restarts=restarts: client.usage().mesh.restarts == restarts)
            took.append(time.monotonic() - told)
            reason = "running kernel convolve went on for 1 s after its caller had gone"
            assert client.usage().mesh.last_end_reason == reason
            works(client)
    figure(f"stopped {min(took):.1f} to {max(took):.1f} s after the deadline, grace 1 s")


def test_a_call_that_left_while_another_runs_ends_nothing_before_it_is_its_turn(own_server):
    server = own_server("--deadline-grace-s", "0.5")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        compile_long(client)
        client.compile("convolve", sc.Array(SIGNAL.shape, "float32"), sc.Array(SHORTER.shape, "float32"))
        busy = computing(the_worker(server))
        running = pool.submit(client.convolve, SIGNAL, SHORTER, timeout=300)
        until(busy)
        with pytest.raises(sc.DeadlineExceededError):
            convolve(client, timeout=0.5)
        np.testing.assert_array_equal(running.result(300).array[:3], [1, 2, 3])
        until(lambda: client.usage().mesh.restarts == 1)
        works(client)


def test_a_program_that_took_too_long_three_times_is_refused_and_no_other(own_server):
    server = own_server("--max-execute-s", "3", "--spare-worker")
    with sc.connect(server.address) as client:
        for _ in range(3):
            with pytest.raises(sc.DeadlineExceededError, match="longest that this server allows"):
                convolve(client)
        restarts = client.usage().mesh.restarts
        with pytest.raises(sc.ProgramRefusedError) as caught:
            convolve(client)
        assert caught.value.reason == "PROGRAM_REFUSED"
        client.convolve(SIGNAL[:1000], WINDOW[:10])
        works(client)
        assert client.usage().mesh.restarts == restarts == 3


def test_a_program_that_crashes_its_worker_is_told_and_refused_after_three_times(own_server):
    server = own_server()
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            compile_long(client)
            worker = the_worker(server)
            busy = computing(worker)
            call = pool.submit(convolve, client)
            until(busy)
            os.kill(worker, signal.SIGSEGV)
            with pytest.raises(sc.MeshRestartedError):
                call.result(300)
            works(client)
            reason = "ended by signal 11 (SIGSEGV) while running kernel convolve"
            assert client.usage().mesh.last_end_reason == reason
        with pytest.raises(sc.ProgramRefusedError):
            convolve(client)
        works(client)


def test_a_compilation_over_the_limit_ends_its_caller_and_is_refused_after_three_times(
    own_server, tmp_path, monkeypatch
):
    slow_kernel.install(tmp_path, monkeypatch)
    server = own_server("--max-compile-s", "0.5", "--cache-dir", "", "--spare-worker")
    with sc.connect(server.address) as client:
        for _ in range(3):
            with pytest.raises(sc.DeadlineExceededError, match="was compiled for over") as caught:
                client.compile("slow_to_compile", sc.Array(4, "float64"), timeout=300)
            assert caught.value.reason == "COMPILE_LIMIT"
            assert client.usage().mesh.last_end_reason == "compiling kernel slow_to_compile took over 0.5 s"
        with pytest.raises(sc.ProgramRefusedError):
            client.compile("slow_to_compile", sc.Array(4, "float64"), timeout=300)
        assert client.usage().mesh.restarts == 3


def test_a_kill_from_outside_is_held_against_nobody(own_server, times):
    """More often than a program may kill by itself; the short form too."""
    server = own_server()
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        for _ in range(max(4, times(9))):
            compile_long(client)
            worker = the_worker(server)
            busy = computing(worker)
            call = pool.submit(convolve, client)
            until(busy)
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(sc.MeshRestartedError):
                call.result(300)
            works(client)
            assert client.usage().mesh.last_end_reason == "ended by signal 9 (SIGKILL)"
