"""Floors and peers of a benchmark: JAX without a server, in a process that runs one job per request.

    python benchmarks/in_process.py ROWS COLUMNS

Reads lines ``WHAT X Y`` from standard input, runs WHAT once on the mesh (x=X, y=Y), with the array sharded as
P("x", "y"), and answers with the seconds from launch until every block is ready. WHAT is

    copy    jnp.copy, which is memcpy: the floor
    pass    x + 1, which reads and writes the array once in a loop of the compiler, as a difference does
    diff    jax.jit(jnp.diff) with the array sharded before and after, as a user of JAX would write it
    halo    the program that the server compiles

The caller tunes the allocator as the server does; see shardcall_server.launcher.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from shardcall_core.layouts.layout import ArrayType, MeshAxes
from shardcall_server.compilation.program import compile_program
from shardcall_server.compilation.resolve import Request, resolve
from shardcall_server.kernels.stencils.diff import Diff

DEVICES = 8
_ALIGNMENT = 64  # bytes; XLA:CPU reads NumPy's memory in place if it is aligned to this
_FUNCTIONS = {
    "copy": jnp.copy,
    "pass": lambda x: x + 1.0,
    "diff": lambda x: jnp.diff(x, axis=0, prepend=0.0),
}


class ProgramRunner:
    """Runs programs on the array; arrays on meshes and compiled programs are made on first use and kept."""

    def __init__(self, rows: int, columns: int) -> None:
        self._shape = (rows, columns)
        memory = np.empty(rows * columns + _ALIGNMENT // 8)
        start = (-memory.ctypes.data % _ALIGNMENT) // 8
        self._x = memory[start : start + rows * columns].reshape(self._shape)
        np.random.default_rng(0).standard_normal(out=self._x)

    def seconds(self, what: str, x: int, y: int) -> float:
        """Runs a program once; returns the seconds."""
        program, arguments = self._program(what, x, y), self._arguments(what, x, y)
        began = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        return time.perf_counter() - began

    @cache  # noqa: B019  # there is one, and it lives as long as the process
    def _array(self, x: int, y: int) -> jax.Array:
        mesh = jax.make_mesh((x, y), ("x", "y"), (AxisType.Auto,) * 2, devices=jax.devices()[: x * y])
        array: jax.Array = jax.device_put(self._x, NamedSharding(mesh, PartitionSpec("x", "y")))
        jax.block_until_ready(array)
        return array

    def _arguments(self, what: str, x: int, y: int) -> tuple[jax.Array, ...]:
        return (self._array(x, y), *((np.float64(0),) if what == "halo" else ()))

    @cache  # noqa: B019
    def _program(self, what: str, x: int, y: int) -> jax.stages.Compiled:
        if what == "halo":
            return self._server_program(x, y)
        array = self._array(x, y)
        function = _FUNCTIONS[what]
        return jax.jit(function, in_shardings=array.sharding, out_shardings=array.sharding).lower(array).compile()

    def _server_program(self, x: int, y: int) -> jax.stages.Compiled:
        float64 = np.dtype(np.float64)
        request = Request(
            parameters={"axis": 0},
            operands=(ArrayType(self._shape, float64), ArrayType((), float64)),
            mesh=MeshAxes((("x", x), ("y", y))),
            device_ids=(),
            in_specs=((("x",), ("y",)),),
            out_specs=(),
            strategy="halo",
        )
        compiled = compile_program(resolve(Diff(), request, range(DEVICES))).compiled
        assert compiled is not None, "the array has elements"
        return compiled


def main() -> int:
    """Answers until standard input ends."""
    parser = argparse.ArgumentParser(
        description="Runs floors and peers of a benchmark on commands from standard input."
    )
    parser.add_argument("rows", type=int)
    parser.add_argument("columns", type=int)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", DEVICES)
    runs = ProgramRunner(arguments.rows, arguments.columns)
    for line in sys.stdin:
        what, x, y = line.split()
        print(runs.seconds(what, int(x), int(y)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
