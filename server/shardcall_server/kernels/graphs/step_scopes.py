"""Scopes of the steps of programs, by which a compiled program's instructions say what they belong to."""

from __future__ import annotations

import re

_STEP = re.compile(r"(?<!jit\()\b(step|plus)(\d+)\b")  # programs have the names of kernels


def scope_of(index: int) -> str:
    """Returns the name of the scope of a step."""
    return f"step{index}"


def scope_behind(distance: int) -> str:
    """Returns the name of the scope of a step in that of another one, which is some steps before it."""
    return f"plus{distance}"


def steps_of(name: str) -> tuple[int, ...]:
    """Returns the steps that the name of an instruction says it belongs to, each in the one before it."""
    steps: list[int] = []
    for kind, number in _STEP.findall(name):
        if kind == "step":
            steps.append(int(number))
        elif steps:
            steps[-1] += int(number)
    return tuple(steps)
