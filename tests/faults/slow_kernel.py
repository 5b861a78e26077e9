"""A kernel that takes seconds to compile, in a package of its own that servers of the tests find."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

COMPILE_S = 5

_SOURCE = f"""
import time

from shardcall_server import authoring as own


def build(problem, mesh):
    def trace(x):
        time.sleep({COMPILE_S})
        return (own.fit(x, problem.padded_result()),)

    return trace


class Slow(own.Kernel):
    name, version, summary = "slow_to_compile", 1, "Its operand; it takes {COMPILE_S} s to compile."
    operands, parameters = (own.OperandInfo("x", "Any array."),), ()
    strategies = (own.Strategy("only", "There is no other.", lambda problem: None, build),)

    def validate(self, operands, parameters):
        return own.Signature({{}}, operands)

    def default_out_specs(self, problem, strategy):
        return problem.in_specs
"""


def install(folder: Path, environment: pytest.MonkeyPatch) -> None:
    """Makes a folder of packages that has the kernel, which servers find that are started from now on."""
    environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])))
    (folder / "slow_kernel_of_tests.py").write_text(_SOURCE)
    told = folder / "slow_kernel_of_tests-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-kernel-of-tests\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[shardcall.kernels]\nslow_to_compile = slow_kernel_of_tests:Slow\n")
