"""Every kernel is as accurate as docs/accuracy.md says, for every element type, at 4,096 elements and more."""

from __future__ import annotations

from pathlib import Path

from accuracy import document

from shardcall_server.authoring.runner import use_virtual_devices
from shardcall_server.kernels.library import kernels

use_virtual_devices()

STATED = document.parsed((Path(__file__).resolve().parents[2] / "docs/accuracy.md").read_text())
REAL = ("float32", "float64")
TARGETS = {"sinh": 4, "cosh": 4, "tanh": 2, "cbrt": 2}
TARGETS |= dict.fromkeys(("gradient, steps of 0.3", "gradient, coordinates"), 4)
DRAWN = {"uniform", "normal", "randint", "permutation"}
CREATED = {
    "full",
    "full_like",
    "arange",
    "linspace",
    "eye",
    "nextafter",
    "complex",
}  # tests/kernels/test_creation.py compares every bit
MOVED = {
    "setitem",
    "take_at",
    "put_at",
    "put_along_axis",
    "lexsort",
    "flatnonzero",
    "graph",
}  # they move elements, or run other kernels
SOLVED = {
    *("cholesky", "inv", "solve", "det", "slogdet", "eigh", "eigvalsh", "svd", "svdvals", "qr"),
}  # tests/kernels/test_linalg.py


def test_the_table_has_every_kernel():
    rows = {row.partition(",")[0] for row, _ in STATED}
    assert rows == {kernel.name for kernel in kernels()} - DRAWN - CREATED - MOVED - SOLVED


def test_the_table_keeps_what_was_promised():
    for row, limit in TARGETS.items():
        assert max(STATED[row, column].worst for column in REAL) <= limit
