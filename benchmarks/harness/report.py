"""Reports of benchmarks: tables, claims, and the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}


@dataclass(frozen=True)
class Claim:
    """A claim about a figure, and the figure.

    Attributes:
        text: the claim.
        measured: the figure, with its unit.
        holds: whether the claim is true.
    """

    text: str
    measured: str
    holds: bool


def ratio_claim(text: str, limit: float, value: float) -> Claim:
    """Returns a claim that a ratio does not exceed a limit."""
    return Claim(text, f"{value:.2f} ×", value <= limit)


def claim_table(claims: Iterable[Claim]) -> list[str]:
    """Returns a table of the claims, with the measured figures and their verdicts."""
    rows = [["yes" if claim.holds else "NO", claim.text, claim.measured] for claim in claims]
    return table([["holds", "claim", "measured"], *rows], left=2) if rows else ["Nothing was claimed of these sizes."]


def table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Returns rows as a table in Markdown, whose first row is the head.

    Args:
        left: the number of columns with text; the others have numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| "
        + " | ".join(f"{c:<{w}}" if i < left else f"{c:>{w}}" for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i < left else ":") for i, w in enumerate(widths)) + "|"
    return [lines[0], rule, *lines[1:]]


def milliseconds(seconds: float) -> str:
    """Formats seconds as milliseconds with about three digits."""
    value = seconds * 1e3
    return (
        f"{value:.3f}"
        if value < 1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 100
        else f"{value:.0f}"
    )


def size_name(size_bytes: int) -> str:
    """Formats a size, such as "64 KiB"."""
    unit = next(unit for unit, factor in _UNITS.items() if size_bytes >= factor or factor == 1)
    return f"{size_bytes / _UNITS[unit]:g} {unit}"


def parse_size(text: str) -> int:
    """Parses a size such as "64KiB"; raises ValueError if it is not one."""
    unit = next((unit for unit in _UNITS if text.strip().endswith(unit)), None)
    if unit is None:
        raise ValueError(f"{text!r} is no size; write it as 64KiB")
    size = int(float(text.strip().removesuffix(unit)) * _UNITS[unit])
    if size < 4 or size % 4:
        raise ValueError(f"{text!r} is no size of an array; give a multiple of 4 bytes")
    return size


def machine(packages: Sequence[str], extra: Mapping[str, str]) -> list[str]:
    """Returns a description of the machine: processor, memory, kernel and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    versions = {"Python": platform.python_version(), **{name: version(name) for name in packages}, **extra}
    return [
        f"{cores} cores of {_processor()}, {memory:.0f} GiB, {platform.system()} {platform.release()};",
        ", ".join(f"{name} {number}" for name, number in versions.items()) + ".",
    ]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
