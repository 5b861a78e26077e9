"""Scopes of the steps of programs, by which a compiled program's instructions say what they belong to."""

from __future__ import annotations

import re

_STEP = re.compile(r"\bstep(\d+)\b")


def scope_of(index: int) -> str:
    """Returns the name of the scope of a step."""
    return f"step{index}"


def steps_of(name: str) -> tuple[int, ...]:
    """Returns the steps that the name of an instruction says it belongs to, each in the one before it."""
    return tuple(map(int, _STEP.findall(name)))
