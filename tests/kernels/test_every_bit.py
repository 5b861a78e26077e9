"""Moves keep every value of 8 and 16 bits, in all layouts, whether blocks are padded or not.

XLA:CPU made zeros of bfloat16's subnormal numbers in some layouts whose blocks are padded, on processors with
AVX512-BF16, which `launcher.py` turns off.
"""

import itertools
from functools import partial

import numpy as np
import pytest
from kernels.conftest import assert_same_bits

from shardcall_core.element_types import NAMED
from shardcall_server.kernels.array_functions.relayout import Copy, Reshard, Transpose

pytestmark = pytest.mark.long

TYPES = ("float16", "bfloat16", "int16", "uint16", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
SPECS = (None, None), ("x", None), (None, "x")
MOVES = [
    *((Copy(), spec, spec) for spec in SPECS),
    *((kernel, *specs) for kernel in (Reshard(), Transpose()) for specs in itertools.product(SPECS, repeat=2)),
]
EVEN, UNEVEN = (240, 280), (257, 256)
"""Sizes that 2, 5 and 8 devices divide, and such whose rows, or on 3 and 5 devices both, are padded."""


def every_pattern(dtype, shape):
    """An array that repeats all values of a type, including NaN of every payload."""
    bits = np.arange(np.prod(shape)) % 2 ** (8 * dtype.itemsize)
    return bits.astype(f"uint{8 * dtype.itemsize}").view(dtype).reshape(shape)


@pytest.mark.parametrize("shape", [EVEN, UNEVEN])
@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", TYPES)
def test_every_layout_moves_every_value_bit_for_bit(run, name, devices, shape):
    x, calls = every_pattern(NAMED[name], shape), []
    for kernel, spec, out_spec in MOVES:
        how = {"mesh": {"x": devices}, "in_specs": [spec], "out_specs": [out_spec]}
        moved = x.T if kernel.name == "transpose" else x
        strategies = {run.resolve(kernel, x, **how).strategy.name, "gspmd"}
        calls += [(run.call(kernel, x, strategy=strategy, **how), moved) for strategy in sorted(strategies)]
    run.check_together(calls, partial(assert_same_bits, any_nan=True), 1)
