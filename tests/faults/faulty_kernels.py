"""Kernels that abort the process that runs or compiles them, or take too much of it, when a test says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_MAX_S = 300  # a server whose test is over must not wait forever

_SOURCE = """
import os, time
from pathlib import Path

import jax
import numpy as np
from shardcall_server import authoring

FOLDER = Path({folder!r})


def wait_for(name):
    end = time.monotonic() + {max_s}
    while not (FOLDER / name).exists() and time.monotonic() < end:
        time.sleep(0.01)


def begin(name):
    (FOLDER / (name + " began")).touch()


def call_python(function, x):
    return jax.pure_callback(function, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def aborting(x):
    def abort(values):
        begin("aborting")
        wait_for("abort")
        os.abort()

    return call_python(abort, x)


def ordinary(x):
    # Traced by a compiler process first, and then by the worker, since it calls Python.
    if (FOLDER / "ordinary was traced").exists():
        begin("ordinary")
        wait_for("finish")
    (FOLDER / "ordinary was traced").touch()
    return call_python(np.asarray, x)


def crashing(x):
    begin("crashing")
    wait_for("crash")
    os.abort()


def growing(x):
    return x + float(np.ones(1 << 27)[0])  # 1 GiB


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


def kernels():
    return [TestKernel(function) for function in (aborting, ordinary, crashing, growing)]
"""


_THREAD = """
import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def install(folder: Path, environment: pytest.MonkeyPatch, *, with_thread: bool = False) -> None:
    """Makes a folder of packages with the kernels, which servers that are started afterwards load.

    Running ``aborting`` and compiling ``crashing`` creates ``aborting began`` and ``crashing began`` there, waits for
    ``abort`` and ``crash``, and aborts. The worker itself compiles ``ordinary``, creates ``ordinary began`` and waits
    for ``finish``. Compiling ``growing`` allocates 1 GiB. With a thread, importing them starts one.
    """
    environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")])))
    source = _SOURCE.format(folder=str(folder), max_s=_MAX_S) + _THREAD * with_thread
    (folder / "faulty_kernels_of_tests.py").write_text(source)
    metadata = folder / "faulty_kernels_of_tests-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty-kernels-of-tests\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[shardcall.kernels]\nfaulty = faulty_kernels_of_tests:kernels\n")
