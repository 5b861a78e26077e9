"""Every kernel is as accurate as docs/accuracy.md says, for every element type, at 4,096 elements and more."""

from pathlib import Path

from accuracy import document

from shardcall_server.authoring.runner import use_virtual_devices
from shardcall_server.kernels.library import kernels

use_virtual_devices()

STATED = document.parsed((Path(__file__).resolve().parents[2] / "docs/accuracy.md").read_text())
REAL = ("float32", "float64")
TARGETS = {"sinh": 4, "cosh": 4, "tanh": 2, "cbrt": 2}
TARGETS |= dict.fromkeys(("gradient, steps of 0.3", "gradient, coordinates"), 4)
ELSEWHERE = {
    *("uniform", "normal", "randint", "permutation"),  # tests/kernels/test_random.py
    *("full", "full_like", "arange", "linspace", "eye", "nextafter", "complex"),  # test_creation.py, every bit
    *("cholesky", "inv", "solve", "det", "slogdet", "eigh", "eigvalsh", "svd", "svdvals", "qr"),  # test_linalg.py
    *("setitem", "take_at", "put_at", "put_along_axis", "lexsort", "flatnonzero"),  # they move elements
    "graph",  # runs other kernels
}


def test_the_table_has_every_kernel():
    rows = {row.partition(",")[0] for row, _ in STATED}
    assert rows == {kernel.name for kernel in kernels()} - ELSEWHERE


def test_the_table_keeps_what_was_promised():
    for row, limit in TARGETS.items():
        assert max(STATED[row, column].worst for column in REAL) <= limit
