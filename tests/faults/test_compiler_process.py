"""Crashes and limits of compiler processes, which affect the program that is compiled alone."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from faults import faulty_kernels, slow_kernel
from servers import children

import shardcall as sc

X = np.arange(8.0)


@pytest.fixture
def server(server_factory, tmp_path, monkeypatch):
    """A server with faulty kernels, one that is slow to compile, and small limits of compilations."""
    faulty_kernels.install(tmp_path, monkeypatch)
    slow_kernel.install(tmp_path, monkeypatch)
    limits = ("--max-compile-s", "30", "--max-compiler-bytes", str(512 << 20))
    return server_factory(*limits, "--cache-dir", str(tmp_path / "cache"), devices=2)


def compilers(server) -> list[int]:
    """The compiler processes of a server with one worker."""
    (worker,) = server.worker_pids()
    (fork_server,) = children(worker)
    return children(fork_server)


def test_a_compiler_that_crashes_costs_its_program_alone(server, tmp_path):
    with (
        sc.connect(server.address, token=token_of("guest")) as guilty,
        sc.connect(server.address, token=token_of("owner")) as innocent,
        sc.connect(server.address) as administrator,
        ThreadPoolExecutor(2) as pool,
    ):
        h = innocent.put(X)
        crashing = pool.submit(guilty.compile, "crashing", sc.Array(8, "float64"))
        slow = pool.submit(innocent.call, "slow_to_compile", X)
        wait_for((tmp_path / "crashing began").exists)
        np.testing.assert_array_equal((h + 1).get(), X + 1)
        (tmp_path / "crash").touch()
        with pytest.raises(sc.CompileFailedError, match="the compiler crashed, or allocated more than"):
            crashing.result(300)
        slow_kernel.signal_file(tmp_path).touch()
        np.testing.assert_array_equal(slow.result(300).array, X)
        for _ in range(3):  # no crash of a compiler is a reason for quarantine
            with pytest.raises(sc.CompileFailedError):
                guilty.compile("crashing", sc.Array(8, "float64"))
        np.testing.assert_array_equal((h * 3).get(), X * 3)
        assert administrator.usage().mesh.restarts == 0


def test_a_compilation_has_a_limit_of_memory(server):
    with sc.connect(server.address) as client:
        h = client.put(X)
        with pytest.raises(sc.CompileFailedError, match=rf"takes more than {512 << 20} bytes.*--max-compiler-bytes"):
            client.compile("growing", sc.Array(8, "float64"))
        np.testing.assert_array_equal((h - 5).get(), X - 5)
        assert client.usage().mesh.restarts == 0


def test_a_compilation_has_a_limit_of_time(server_factory, tmp_path, monkeypatch):
    slow_kernel.install(tmp_path, monkeypatch)
    server = server_factory("--max-compile-s", "0.5", "--cache-dir", "", devices=1)
    with sc.connect(server.address) as client:
        for _ in range(4):
            with pytest.raises(sc.DeadlineExceededError, match=r"was compiled for over 0\.5 s") as caught:
                client.compile("slow_to_compile", sc.Array(4, "float64"), timeout=300)
            assert caught.value.reason == "COMPILE_LIMIT"
        assert client.usage().mesh.restarts == 0


def test_a_compilation_that_nobody_waits_for_ends_when_another_begins(server, tmp_path):
    with sc.connect(server.address) as client:
        with pytest.raises(sc.DeadlineExceededError):
            client.call("slow_to_compile", X, timeout=1)
        busy = compilers(server)
        client.compile("negative", sc.Array(9, "float64"))
        wait_for(lambda: not set(busy) <= set(compilers(server)))
        slow_kernel.signal_file(tmp_path).touch()
        np.testing.assert_array_equal(client.call("slow_to_compile", X).array, X)


def test_a_program_that_calls_python_runs(server, tmp_path):
    (tmp_path / "finish").touch()
    with sc.connect(server.address) as client:
        for _ in range(2):
            np.testing.assert_array_equal(client.call("ordinary", X).array, X)


def test_compilers_that_were_killed_are_replaced(server):
    with sc.connect(server.address) as client:
        h = client.put(X)
        (h + 1).get()
        for pid in compilers(server):
            assert Path(f"/proc/{pid}/oom_score_adj").read_text() == "1000\n"
            os.kill(pid, signal.SIGKILL)
        np.testing.assert_array_equal((h / 2).get(), X / 2)
        (worker,) = server.worker_pids()
        (fork_server,) = children(worker)
        os.kill(fork_server, signal.SIGKILL)
        for divisor in (3, 4):
            np.testing.assert_array_equal(np.floor_divide(h, divisor).get(), X // divisor)
        np.testing.assert_array_equal(np.sin(h).get().shape, X.shape)
        assert client.usage().mesh.restarts == 0


def test_a_worker_with_threads_of_installed_kernels_compiles(server_factory, tmp_path, monkeypatch):
    faulty_kernels.install(tmp_path, monkeypatch, with_thread=True)
    server = server_factory("--cache-dir", "", devices=2)
    with sc.connect(server.address) as client:
        np.testing.assert_array_equal(client.call("negative", X).array, -X)
    (worker,) = server.worker_pids()
    assert children(worker) == []
