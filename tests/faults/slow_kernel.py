"""A kernel whose compilation ends when a test says so, in a package that servers of the tests load."""

import os
from pathlib import Path

import pytest

_MAX_S = 300  # a server whose test is over must not wait forever

_SOURCE = """
import time
from pathlib import Path

from shardcall_server import authoring

FOLDER = Path({folder!r})


def wait_for(name):
    end = time.monotonic() + {max_s}
    while not (FOLDER / name).exists() and time.monotonic() < end:
        time.sleep(0.01)


class TestKernel(authoring.Kernel):
    version, summary = 1, "Its operand, if it returns."
    operands = (authoring.OperandInfo("x", "Any array."),)

    def __init__(self, function):
        self.name = function.__name__

        def build(problem, mesh):
            return lambda x: (authoring.fit(function(x), problem.padded_result()),)

        self.strategies = (authoring.Strategy("only", "There is no other.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        return authoring.Signature(None, operands)

    def default_out_specs(self, problem, strategy):
        return problem.in_specs


def slow_to_compile(x):
    wait_for("compile now")
    return x


FUNCTIONS = [slow_to_compile]


def kernels():
    return [TestKernel(function) for function in FUNCTIONS]
"""


def signal_file(folder: Path) -> Path:
    """The file that compiling the kernel of a folder waits for."""
    return folder / "compile now"


def install(folder: Path, environment: pytest.MonkeyPatch, more: str = "") -> Path:
    """Makes a folder of packages with the kernel, which servers that are started afterwards load.

    Args:
        folder: of the packages.
        environment: of the servers.
        more: source that adds functions to ``FUNCTIONS``, of which each becomes a kernel.

    Returns:
        The file that compiling it waits for, which is not there yet.
    """
    environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])))
    (folder / "kernels_of_tests.py").write_text(_SOURCE.format(folder=str(folder), max_s=_MAX_S) + more)
    metadata = folder / "kernels_of_tests-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels-of-tests\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[shardcall.kernels]\nslow = kernels_of_tests:kernels\n")
    return signal_file(folder)
