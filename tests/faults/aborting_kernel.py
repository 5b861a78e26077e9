"""Two kernels whose compilations end when a test says so: of one with an abort of the worker, of the other well."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_MAX_S = 300  # a server whose test is over must not wait forever

_SOURCE = """
import os, time
from pathlib import Path

from shardcall_server import authoring

FOLDER = Path({folder!r})


def wait_for(name):
    end = time.monotonic() + {max_s}
    while not (FOLDER / name).exists() and time.monotonic() < end:
        time.sleep(0.01)


def build_aborting(problem, mesh):
    def trace(x):
        (FOLDER / "aborting began").touch()
        wait_for("abort")
        os.abort()

    return trace


def build_ordinary(problem, mesh):
    def trace(x):
        (FOLDER / "ordinary began").touch()
        wait_for("finish")
        return (authoring.fit(x, problem.padded_result()),)

    return trace


class TestKernel(authoring.Kernel):
    version, summary = 1, "Its operand; its compilation waits for a file."
    operands = (authoring.OperandInfo("x", "Any array."),)

    def __init__(self, name, build):
        self.name = name
        self.strategies = (authoring.Strategy("only", "There is no other.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        return authoring.Signature(None, operands)

    def default_out_specs(self, problem, strategy):
        return problem.in_specs


def kernels():
    return [TestKernel("aborting", build_aborting), TestKernel("ordinary", build_ordinary)]
"""


def install(folder: Path, environment: pytest.MonkeyPatch) -> None:
    """Makes a folder of packages with the kernels, which servers that are started afterwards load.

    Their compilations create ``aborting began`` and ``ordinary began`` there, and wait for ``abort`` and ``finish``.
    """
    environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])))
    (folder / "aborting_kernel_of_tests.py").write_text(_SOURCE.format(folder=str(folder), max_s=_MAX_S))
    metadata = folder / "aborting_kernel_of_tests-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: aborting-kernel-of-tests\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[shardcall.kernels]\naborting = aborting_kernel_of_tests:kernels\n")
