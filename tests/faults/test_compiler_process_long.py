"""Limits of compiler processes, those that are killed, and programs that they leave to the worker."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from faults import faulty_kernels, slow_kernel
from faults.test_compiler_process import X, server_with_faulty_kernels
from servers import children

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture
def server(server_factory, tmp_path, monkeypatch):
    return server_with_faulty_kernels(server_factory, tmp_path, monkeypatch)


def compilers(server) -> list[int]:
    """The compiler processes of a server with one worker."""
    (worker,) = server.worker_pids()
    (fork_server,) = children(worker)
    return children(fork_server)


def test_a_compilation_has_a_limit_of_memory(server):
    with sc.connect(server.address) as client:
        h = client.put(X)
        with pytest.raises(sc.CompileFailedError, match=rf"takes more than {512 << 20} bytes.*--max-compiler-bytes"):
            client.compile("growing", sc.Array(8, "float64"))
        np.testing.assert_array_equal((h - 5).get(), X - 5)
        assert client.usage().mesh.restarts == 0


def test_a_compilation_has_a_limit_of_time(server_factory, tmp_path, monkeypatch):
    slow_kernel.install(tmp_path, monkeypatch)
    server = server_factory("--max-compile-s", "0.5", "--cache-dir", "", devices=1, why="it compiles for half a second")
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
    server = server_factory("--cache-dir", "", devices=2, why="its kernels have threads")
    with sc.connect(server.address) as client:
        np.testing.assert_array_equal(client.call("negative", X).array, -X)
    (worker,) = server.worker_pids()
    assert children(worker) == []
