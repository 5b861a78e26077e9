"""Kernels that abort the process that runs or compiles them, or take too much of it, when a test says so."""

from pathlib import Path

import pytest
from faults import slow_kernel

_SOURCE = """
import os

import jax
import numpy as np


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


FUNCTIONS += [aborting, ordinary, crashing, growing]
"""

_THREAD = """
import threading

threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def install(folder: Path, environment: pytest.MonkeyPatch, *, with_thread: bool = False) -> Path:
    """Makes a folder of packages with these kernels and the slow one, which servers that are started afterwards load.

    Running ``aborting`` and compiling ``crashing`` creates ``aborting began`` and ``crashing began`` there, waits for
    ``abort`` and ``crash``, and aborts. The worker itself compiles ``ordinary``, creates ``ordinary began`` and waits
    for ``finish``. Compiling ``growing`` allocates 1 GiB. With a thread, importing them starts one.
    """
    return slow_kernel.install(folder, environment, _SOURCE + _THREAD * with_thread)
