"""The peer without a server: JAX in the caller's process, with NumPy arrays as arguments and results.

    python -m peers.in_process_jax

``diff`` is jax.numpy.diff; ``halo`` is the server's own program, as it compiles it. Both put, call and get.
``calls-1`` and ``calls-8`` call and get with 64 bytes, which is what a small call costs without a server; each of the
calls of ``dependent`` has the result of the one before as its operand.
"""

from __future__ import annotations

import time
from functools import cache, partial

import jax
import numpy as np

from harness.answering import Answer, Handler, NDArray, TimedHandler, answer, repeated
from peers import jax_job
from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.program import compile_program
from shardcall_server.compilation.resolve import Request, resolve
from shardcall_server.kernels.stencils.diff import Diff

_SMALL = np.arange(8.0).reshape(8, 1)


def halo(x: NDArray, devices: int) -> NDArray:
    """Runs the server's program."""
    program = server_program(x.shape, x.dtype.name, devices)
    array = jax.device_put(x, jax_job.row_sharding(devices))
    return np.asarray(jax.tree.leaves(program(array, x.dtype.type(0)))[0])


def small(x: NDArray, devices: int) -> NDArray:
    """Runs the server's program on small arrays, which are passed without a copy as in the server's worker."""
    return np.asarray(jax.tree.leaves(server_program(x.shape, x.dtype.name, devices)(x, x.dtype.type(0)))[0])


@cache
def server_program(shape: tuple[int, ...], dtype: str, devices: int) -> jax.stages.Compiled:
    """Compiles a difference as the server does."""
    element = np.dtype(dtype)
    request = Request(
        parameters={"axis": 0},
        operands=(ArrayType(shape, element), ArrayType((), element)),
        mesh=MeshAxes((("x", devices),)),
        device_ids=(),
        in_specs=((("x",),),),
        out_specs=(),
        strategy="auto",
    )
    compiled = compile_program(resolve(Diff(), request, range(jax_job.DEVICES))).compiled
    assert compiled is not None, "the array has elements"
    return compiled


def dependent(count: int) -> Answer:
    """Adds 1 a number of times, each time to the previous result, and gets the last result."""
    step, last = jax.jit(lambda x: x + 1), jax.device_put(np.zeros((64, 64)))
    step(last).block_until_ready()
    began = time.perf_counter()
    for _ in range(count):
        last = step(last)
    right = bool((np.asarray(last) == count).all())
    return {"seconds": [(time.perf_counter() - began) / count], "right": right}


def main() -> None:
    jax_job.configure()
    handlers: dict[str, Handler] = {
        "diff": TimedHandler(partial(jax_job.run, "diff")),
        "halo": TimedHandler(lambda x: halo(x, jax_job.devices_for(x))),
        "dependent": dependent,
    }
    answer(handlers | {f"calls-{devices}": repeated(partial(small, _SMALL, devices)) for devices in (1, 8)})


if __name__ == "__main__":
    main()
