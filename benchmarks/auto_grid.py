"""Judges the choices of auto: 60 cases, all strategies of each timed in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import shardcall as sc
from harness.report import Claim, milliseconds, table
from kernel_cases import Asker, Case, Samples, measure, mesh_of, strategies_of
from shardcall import P

MESHES = ((8, 1), (1, 8), (4, 2), (2, 4))
SIZES = (128, 512, 2048)
LOST = 1.1
"""The quotient of the times of auto's strategy and the best one above which auto loses, if it is exceeded twice."""
AGAIN = 15
MAX_LOST = 3
_PATIENCE_S = 8.0  # the server times what takes long in pieces, while it is idle


@dataclass(frozen=True)
class Question:
    """A call with ``auto``.

    Attributes:
        kernel: the name of the kernel.
        size: the number of rows, and of columns, of the operands.
        sizes: the sizes of the mesh axes.
        operands: the operands, which are on the mesh.
        how: the parameters and specs.
    """

    kernel: str
    size: int
    sizes: tuple[int, ...]
    operands: tuple[sc.RemoteArray, ...]
    how: dict[str, Any]


def questions(asker: Asker) -> Iterator[Question]:
    """Yields the calls of 5 kernels on 4 meshes with 3 sizes of operands."""
    for size in SIZES:
        x, y = np.random.default_rng(0).standard_normal((2, size, size)).astype(np.float32)
        for sizes in MESHES:
            mesh = mesh_of(sizes)

            def here(array: np.ndarray, *entries: str | None, mesh: sc.Mesh = mesh) -> sc.RemoteArray:
                return asker.here(array, mesh, P(*entries))

            blocks = here(x, "x", "y")
            yield Question("diff", size, sizes, (blocks,), {"axis": 0})
            yield Question("cumsum", size, sizes, (blocks,), {"axis": 0})
            yield Question("sum", size, sizes, (blocks,), {"axis": 0})
            # Along the axis with more devices one shards the contracting axis, the other the result.
            longer = "x" if sizes[0] >= sizes[1] else "y"
            parts = here(x, None, longer), here(y, longer, None)
            yield Question("matmul", size, sizes, parts, {"out_specs": [P(longer, None)]})
            yield Question("matmul", size, sizes, (blocks, here(y, "x", "y")), {"out_specs": [P("x", "y")]})


def auto_section(asker: Asker, size: int, rounds: int) -> tuple[list[str], list[Claim], dict[str, object]]:
    """Times every strategy of every case, and judges the strategies that auto selected."""
    del size
    rows = [["kernel", "size", "mesh", "auto", "timed by the server", "ms", "best", "ms", "auto ÷ best"]]
    lost, count = [], 0
    for question in questions(asker):
        count += 1
        chosen = chosen_strategy(asker.client, question.kernel, *question.operands, **question.how)
        cases = list(_cases(asker, question))
        samples = {c.what: s for c, s in zip(cases, measure(cases, rounds).values(), strict=True)}
        if _ratio(samples, chosen) > LOST:  # measured again, in interleaved rounds
            samples = {c.what: s for c, s in zip(cases, measure(cases, AGAIN).values(), strict=True)}
        best = min(samples, key=lambda name: samples[name].median)
        ratio = _ratio(samples, chosen)
        if ratio > LOST and samples[chosen].quartiles[0] > samples[best].quartiles[1]:
            lost.append(f"{question.kernel} {question.size} on {question.sizes}")
        timings = asker.client.plan(question.kernel, *question.operands, **question.how).strategy_timings
        timed = ", ".join(f"{name} {milliseconds(seconds)}" for name, seconds in timings.items())
        rows.append(
            [
                *(question.kernel, str(question.size), str(question.sizes), chosen, timed),
                *(milliseconds(samples[chosen].median), best, milliseconds(samples[best].median), f"{ratio:.2f}"),
            ]
        )
    text = f"auto loses at most {MAX_LOST} of {count} cases" + (f"; lost: {', '.join(lost)}" if lost else "")
    figure = {
        "title": "What auto chose, next to the best strategy of each case",
        "x": "time of auto's choice ÷ the best",
        "scale": "linear",
        "rows": [" ".join(row[:3]) for row in rows[1:]],
        "bars": {"auto": [float(row[-1]) for row in rows[1:]]},
        "floor": 1,
        "floor_name": "the best",
    }
    return table(rows, left=5), [Claim(text, str(len(lost)), len(lost) <= MAX_LOST)], figure


def chosen_strategy(client: sc.Client, kernel: str, *operands: sc.RemoteArray, **how: Any) -> str:
    """Returns the strategy that auto selects after the server has had time to measure it."""
    client.delete(*client.call(kernel, *operands, keep=True, **how).arrays)
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        plan = client.plan(kernel, *operands, **how)
        if plan.strategy_timings or time.monotonic() > deadline:
            return plan.strategy
        time.sleep(0.1)


def _cases(asker: Asker, question: Question) -> Iterator[Case]:
    for strategy in strategies_of(asker.client, question.kernel, *question.operands, **question.how):
        ask = asker.ask(question.kernel, *question.operands, strategy=strategy, **question.how)
        yield Case(strategy, question.sizes, ask)


def _ratio(samples: dict[str, Samples], chosen: str) -> float:
    return samples[chosen].median / min(s.median for s in samples.values())
