"""Programs of arrays as jobs: their arguments, the times of their runs, and the comparison of results with NumPy's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from harness.answering import Answer
from program_cases import CASES, SMALL_CASES, Arguments, Case

_MAX_RUNS = 5
_MAX_S = 0.3
_TOLERANCES = {4: 1e-4, 8: 1e-9}
"""By the bytes of a real number: the difference that a result may have, as a part of its largest number."""

ALL_CASES = {**CASES, **SMALL_CASES}


class CaseInputs:
    """A case with its arguments, and NumPy's results.

    Args:
        name: the name of the case.
        nbytes: the bytes of a large array.

    Attributes:
        case: the case.
        arguments: its arguments.
    """

    def __init__(self, name: str, nbytes: int) -> None:
        self.case: Case = ALL_CASES[name]
        self.arguments: Arguments = self.case.arguments(nbytes)
        self._compared: set[str] = set()

    @cached_property
    def expected(self) -> list[np.ndarray[Any, Any]]:
        """The arrays that NumPy returns."""
        return arrays_of(run_numpy(self.case, *copies(self.arguments)))

    def answer(
        self,
        job: str,
        run: Callable[..., Any],
        arguments: Callable[[], Sequence[Any]],
        get: Callable[[Any], Sequence[np.ndarray[Any, Any]]] | None = None,
    ) -> Answer:
        """Runs a program several times and compares its first result with NumPy's.

        Args:
            job: the name of the job.
            run: runs the program and waits for its results.
            arguments: returns the arguments of a run, which the clock does not see.
            get: returns the arrays of a result; None if they are not compared.

        Returns:
            The seconds of the runs.
        """
        seconds: list[float] = []
        result = None
        while not seconds or (len(seconds) < _MAX_RUNS and sum(seconds) < _MAX_S):
            result = None  # frees its memory, which the clock does not see either
            taken = arguments()
            began = time.perf_counter()
            result = run(*taken)
            seconds.append(time.perf_counter() - began)
        answer: Answer = {"seconds": seconds}
        if get is not None and job not in self._compared:
            self._compared.add(job)
            answer["right"] = are_close(self.expected, get(result))
        return answer


def run_numpy(case: Case, *arguments: Any, xp: Any = np, wait: Callable[[], None] = lambda: None) -> Any:
    """Runs a program without a compiler, its steps in a loop of Python.

    Args:
        case: the program.
        arguments: its arguments.
        xp: the namespace of the arrays.
        wait: waits for all results.
    """
    if not case.steps:
        result = case.program(xp, *arguments)
    else:
        result = arguments
        for _ in range(case.steps):
            result = case.program(xp, *result)
    wait()
    return result


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Returns copies of the arrays among arguments."""
    return [a.copy() if np.ndim(a) else a for a in arguments]


def arrays_of(result: Any) -> list[np.ndarray[Any, Any]]:
    """Returns the arrays of a result, in this process."""
    return [np.asarray(a) for a in (result if isinstance(result, tuple) else (result,))]


def are_close(expected: Sequence[np.ndarray[Any, Any]], results: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Returns True if results have the shapes of the expected ones and about their values."""
    for array, result in zip(expected, results, strict=True):
        if array.shape != result.shape:
            return False
        is_single = array.dtype == np.float32
        allowed = _TOLERANCES[4 if is_single else 8] * max(1.0, float(np.abs(array).max()))
        if not bool((np.abs(result - array) <= allowed).all()):
            return False
    return True
