"""Promised reproducibility of kernels on every mesh: on one device, and on blocks of other sizes.

Blocks of 4097, 1366 and 513 elements leave different remainders of vectors, which must be computed in the same way.
"""

import re
from pathlib import Path

from kernels.conftest import KERNELS

from shardcall_server.kernels.core.kernel import Kernel
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.elementwise.elementwise import ElementwiseKernel


def test_a_kernel_promises_nothing_unless_it_says_so():
    assert Kernel.reproducibility is Reproducibility.NOT_PROMISED
    assert not Kernel.is_reproducible(KERNELS["std"], None)


def test_the_documentation_lists_the_promise_of_every_kernel():
    texts = {
        Reproducibility.ALWAYS: "always",
        Reproducibility.INTEGERS: "of integers and bool",
        Reproducibility.PER_CALL: "per call",
        Reproducibility.NOT_PROMISED: "not promised",
    }
    page = Path(__file__).parents[2] / "docs" / "reproducibility.md"
    rows = [line.split("|")[1:3] for line in page.read_text().splitlines() if line.startswith("| ")][1:]
    promises = {name: promise.strip() for names, promise in rows for name in re.findall(r"`(\w+)`", names)}
    (functions,) = (promise.strip() for names, promise in rows if "elementwise" in names)
    for name, kernel in KERNELS.items():
        promise = functions if isinstance(kernel, ElementwiseKernel) else promises[name]
        assert promise.startswith(texts[kernel.reproducibility]), name
