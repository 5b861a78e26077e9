"""Crashes and limits of compiler processes, which affect the program that is compiled alone."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from end_to_end.messages import token_of
from end_to_end.processes import wait_for
from faults import faulty_kernels, slow_kernel

import shardcall as sc

X = np.arange(8.0)


def server_with_faulty_kernels(server_factory, folder, environment):
    faulty_kernels.install(folder, environment)
    limits = ("--max-compile-s", "30", "--max-compiler-bytes", str(512 << 20), "--cache-dir", str(folder / "cache"))
    return server_factory(*limits, devices=2, why="it has kernels that crash compilers")


@pytest.fixture
def server(server_factory, tmp_path, monkeypatch):
    """A server with faulty kernels, one that is slow to compile, and small limits of compilations."""
    return server_with_faulty_kernels(server_factory, tmp_path, monkeypatch)


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
