"""The interface of a known-answer test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Outcome:
    """The outcome of a test.

    Attributes:
        failures: the fault of each kernel: "3584 of 4096 elements are wrong".
        untested: the kernels whose results were not compared, since their programs could not be compiled.
    """

    failures: Mapping[str, str]
    untested: tuple[str, ...] = ()


Finish = Callable[[], Outcome]
"""Waits for a launched test and compares its results."""

Launch = Callable[[], Finish]
"""Hands a compiled test to the devices and returns at once."""


@dataclass(frozen=True)
class KnownAnswer:
    """A program with known results.

    Attributes:
        name: the subject of the test: "elementwise float64 1/5", "halo exchange".
        kernels: the kernels that are refused where it fails.
        is_collective: True if it runs on all devices; the processes of a mesh launch it in the same order as all other
            programs.
        compile: compiles it and places the operands, so that a launch takes no time.
    """

    name: str
    kernels: tuple[str, ...]
    is_collective: bool
    compile: Callable[[], Launch]
