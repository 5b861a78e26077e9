"""The child process of a benchmark, which runs one job per request and sleeps in between.

Lines ``WHAT NUMBER`` come on standard input; each is answered with one line of JSON through a separate pipe, since
libraries may print to standard output. The module runs in the environments of peers too, so it needs only NumPy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

NDArray: TypeAlias = npt.NDArray[Any]
Answer: TypeAlias = dict[str, Any]
Handler: TypeAlias = Callable[[int], Answer]

ANSWERS_FD = "SHARDCALL_BENCHMARK_ANSWERS_FD"
"""The environment variable that names the pipe."""

SHARDED_FROM_BYTES = 4096
"""Arrays of at least this size are computed on all devices, smaller ones on one."""

_LARGE_BYTES = 1 << 20
_SMALL_CALLS = 10


@lru_cache(maxsize=1)
def operand(size_bytes: int) -> NDArray:
    """Returns the array of a size, which is the same in every process; only the last one is kept."""
    generator = np.random.default_rng(0)
    if size_bytes < 8:
        return generator.standard_normal((1, size_bytes // 4)).astype(np.float32)
    count = size_bytes // 8
    rows = 1 << (count.bit_length() - 1) // 2
    return generator.standard_normal((rows, count // rows))


@lru_cache(maxsize=1)
def touched_memory(size_bytes: int) -> NDArray:
    """Returns touched memory of the array's shape, into which results are copied."""
    return np.ones_like(operand(size_bytes))


def difference(x: NDArray) -> NDArray:
    """Returns the expected result of a job."""
    return np.diff(x, axis=0, prepend=x.dtype.type(0))


class TimedHandler:
    """A handler that runs a job on the array of the requested size and times it; several times on small arrays.

    Args:
        job: takes the array and returns the result.
        expected: returns the expected result, which is compared bit for bit at the first request of a size.
    """

    def __init__(self, job: Callable[[NDArray], NDArray], expected: Callable[[NDArray], NDArray] = difference) -> None:
        self._job = job
        self._expected = expected
        self._checked: set[int] = set()

    def __call__(self, size_bytes: int) -> Answer:
        """Runs the job."""
        x, seconds = self.argument(size_bytes), []
        # A process that has slept is slow at first, so the caller takes the median of a few calls.
        for _ in range(1 if size_bytes >= _LARGE_BYTES else _SMALL_CALLS):
            result = None  # frees the memory of the result before the next job
            began = time.perf_counter()
            result = self._job(x)
            seconds.append(time.perf_counter() - began)
        answer: Answer = {"seconds": seconds}
        if size_bytes not in self._checked:
            self._checked.add(size_bytes)
            answer["right"] = np.array_equal(cast(NDArray, result), self._expected(x))
        return answer

    def argument(self, size_bytes: int) -> NDArray:
        """Returns the argument of the job."""
        return operand(size_bytes)


def same(x: NDArray) -> NDArray:
    """Returns the expected result of an echo."""
    return x


def repeated(call: Callable[[], object]) -> Handler:
    """Returns a handler that makes the requested number of calls, one after the other."""

    def handler(count: int) -> Answer:
        seconds = []
        cpu = time.process_time()
        for _ in range(count):
            began = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - began)
        return {"seconds": seconds, "calls": count, "cpu": time.process_time() - cpu}

    return handler


def answer(handlers: Mapping[str, Handler]) -> None:
    """Answers until standard input ends; on standard output if there is no pipe."""
    with os.fdopen(int(os.environ.get(ANSWERS_FD, "1")), "w") as answers:
        for line in sys.stdin:
            what, number = line.split()
            print(json.dumps(_answered(handlers, what, int(number))), file=answers, flush=True)


def _answered(handlers: Mapping[str, Handler], what: str, number: int) -> Answer:
    if what not in handlers:
        return {"error": "cannot be done here"}
    try:
        return handlers[what](number)
    except Exception as error:  # noqa: BLE001  # a failure becomes a row of the table
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}
