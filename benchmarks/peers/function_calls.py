"""Twenty functions of NumPy on an array of 400 × 10, and small programs, over eight devices: `jax.numpy` or a client.

python -m peers.function_calls [ADDRESS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from harness.answering import Answer, answer
from peers.program_jobs import are_close, arrays_of, run_numpy
from program_cases import DEVICES, EAGER_CASES

FUNCTIONS: Mapping[str, Callable[[Any, Any, Any], Any]] = MappingProxyType(
    {
        "add": lambda _xp, h, k: h + k,
        "sin": lambda xp, h, _k: xp.sin(h),
        "cos": lambda xp, h, _k: xp.cos(h),
        "cumsum": lambda xp, h, _k: xp.cumsum(h, axis=0),
        "where": lambda xp, h, k: xp.where(h > 0.5, h, k),
        "sum": lambda xp, h, _k: xp.sum(h, axis=0),
        "sort": lambda xp, h, _k: xp.sort(h, axis=0),
        "concatenate": lambda xp, h, k: xp.concatenate([h, k]),
        "diff": lambda xp, h, _k: xp.diff(h, axis=0),
        "mean": lambda xp, h, _k: xp.mean(h),
        "std": lambda xp, h, _k: xp.std(h, axis=0),
        "argmax": lambda xp, h, _k: xp.argmax(h, axis=0),
        "max": lambda xp, h, _k: xp.max(h),
        "clip": lambda xp, h, _k: xp.clip(h, 0.2, 0.8),
        "exp": lambda xp, h, _k: xp.exp(h),
        "median": lambda xp, h, _k: xp.median(h, axis=0),
        "matmul": lambda _xp, h, k: h.T @ k,
        "transpose": lambda _xp, h, _k: h.T + 1.0,
        "slice": lambda _xp, h, _k: h[1:] - h[:-1],
        "roll": lambda xp, h, _k: xp.roll(h, 1, axis=0),
    }
)
"""Functions of a module and two arrays, by name, in the order in which they are called."""

_OPERANDS = (np.random.default_rng(0).random((400, 10)), np.random.default_rng(1).random((400, 10)))


def _called(functions: Any, arrays: Any, rounds: int) -> Answer:
    """Returns the seconds of each function with the read of its result, the mean of some rounds."""
    seconds = []
    for function in FUNCTIONS.values():
        began = time.perf_counter()
        for _ in range(rounds):
            np.asarray(function(functions, *arrays))
        seconds.append((time.perf_counter() - began) / rounds)
    return {"seconds": seconds}


def _ran(functions: Any, put: Callable[[Any], Any]) -> Answer:
    """Returns the seconds of a run of each program with its results read; "right" if all are close to NumPy's."""
    seconds, right = [], True
    for case in EAGER_CASES.values():
        values = case.arguments(0)
        arguments = list(map(put, values))
        began = time.perf_counter()
        results = arrays_of(run_numpy(case, *arguments, xp=functions))
        seconds.append(time.perf_counter() - began)
        right = right and are_close(arrays_of(run_numpy(case, *values)), results)
    return {"seconds": seconds, "right": right}


def main() -> None:
    """Answers until standard input ends."""
    functions: Any
    put: Callable[[Any], Any]
    if len(sys.argv) > 1:
        import shardcall  # noqa: PLC0415  # the other process has none

        client = shardcall.connect(sys.argv[1])
        functions = client.xp
        put = partial(client.put, mesh=shardcall.Mesh(x=DEVICES), spec=("x",))
    else:
        import jax  # noqa: PLC0415  # nor has this one

        from peers import jax_job  # noqa: PLC0415

        jax_job.configure()
        functions = jax.numpy
        put = partial(jax.device_put, device=jax_job.row_sharding(DEVICES))

    arrays = tuple(map(put, _OPERANDS))
    answer(
        {
            "call": lambda rounds: _called(functions, arrays, rounds),
            "programs": lambda _: _ran(functions, put),
            "start": lambda _: {"seconds": [0.0]},
        }
    )


if __name__ == "__main__":
    main()
