"""A kernel whose compilation ends when a test says so, in a package that servers of the tests load."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_MAX_S = 300  # a server whose test is over must not wait forever

_SOURCE = """
import os, time

from shardcall_server import authoring


def build(problem, mesh):
    def trace(x):
        end = time.monotonic() + {max_s}
        while not os.path.exists({signal_file!r}) and time.monotonic() < end:
            time.sleep(0.01)
        return (authoring.fit(x, problem.padded_result()),)

    return trace


class SlowKernel(authoring.Kernel):
    name, version, summary = "slow_to_compile", 1, "Its operand; its compilation waits for a file."
    operands = (authoring.OperandInfo("x", "Any array."),)
    strategies = (authoring.Strategy("only", "There is no other.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        return authoring.Signature(None, operands)

    def default_out_specs(self, problem, strategy):
        return problem.in_specs
"""


def signal_file(folder: Path) -> Path:
    """The file that compiling the kernel of a folder waits for."""
    return folder / "compile now"


def install(folder: Path, environment: pytest.MonkeyPatch) -> Path:
    """Makes a folder of packages with the kernel, which servers that are started afterwards load.

    Returns the file that compiling it waits for, which is not there yet.
    """
    environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])))
    (folder / "slow_kernel_of_tests.py").write_text(_SOURCE.format(signal_file=str(signal_file(folder)), max_s=_MAX_S))
    metadata = folder / "slow_kernel_of_tests-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-kernel-of-tests\nVersion: 1.0\n")
    entry_point = "slow_to_compile = slow_kernel_of_tests:SlowKernel"
    (metadata / "entry_points.txt").write_text(f"[shardcall.kernels]\n{entry_point}\n")
    return signal_file(folder)
