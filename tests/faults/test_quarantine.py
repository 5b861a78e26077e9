"""Programs that ended the mesh three times are refused; crashes of others do not count."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from end_to_end.processes import computing, wait_for
from faults import slow_kernel
from faults.long_programs import SIGNAL, WINDOW, compile_long, convolve, the_worker, works

import shardcall as sc


def test_a_program_that_took_too_long_three_times_is_refused_and_no_other(server_factory):
    server = server_factory("--max-execute-s", "2", devices=2)
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
        assert client.usage().mesh.restarts == restarts


@pytest.mark.long
def test_a_program_that_crashes_its_worker_is_reported_and_quarantined_after_three_crashes(server_factory):
    server = server_factory()
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            compile_long(client)
            worker = the_worker(server)
            busy = computing(worker)
            call = pool.submit(convolve, client)
            wait_for(busy)
            os.kill(worker, signal.SIGSEGV)
            with pytest.raises(sc.MeshRestartedError):
                call.result(300)
            works(client)
            reason = "ended by signal 11 (SIGSEGV) while running kernel convolve"
            assert client.usage().mesh.last_exit_reason == reason
        with pytest.raises(sc.ProgramRefusedError):
            convolve(client)
        works(client)


@pytest.mark.long
def test_a_compilation_beyond_the_limit_ends_its_caller_and_is_refused_after_three_times(
    server_factory, tmp_path, monkeypatch
):
    slow_kernel.install(tmp_path, monkeypatch)
    server = server_factory("--max-compile-s", "0.5", "--cache-dir", "", "--spare-worker")
    with sc.connect(server.address) as client:
        for _ in range(3):
            with pytest.raises(sc.DeadlineExceededError, match="was compiled for over") as caught:
                client.compile("slow_to_compile", sc.Array(4, "float64"), timeout=300)
            assert caught.value.reason == "COMPILE_LIMIT"
            assert client.usage().mesh.last_exit_reason == "compiling kernel slow_to_compile took over 0.5 s"
        with pytest.raises(sc.ProgramRefusedError):
            client.compile("slow_to_compile", sc.Array(4, "float64"), timeout=300)
        assert client.usage().mesh.restarts >= 3


@pytest.mark.long
def test_a_kill_from_outside_quarantines_nothing(server_factory, times):
    """More kills than one program may cause, in the short form too."""
    server = server_factory()
    with sc.connect(server.address, retries=False) as client, ThreadPoolExecutor(1) as pool:
        for _ in range(max(4, times(9))):
            compile_long(client)
            worker = the_worker(server)
            busy = computing(worker)
            call = pool.submit(convolve, client)
            wait_for(busy)
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(sc.MeshRestartedError):
                call.result(300)
            works(client)
            assert client.usage().mesh.last_exit_reason == "ended by signal 9 (SIGKILL)"
