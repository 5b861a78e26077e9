"""Elements of every type, differences of every order, and moves of every value of 8 and 16 bits in all layouts.

XLA:CPU made zeros of bfloat16's subnormal numbers in some layouts whose blocks are padded, on processors with
AVX512-BF16, which `launcher.py` turns off.
"""

import itertools
from functools import partial

import numpy as np
import pytest
from kernels import test_element_types as short
from kernels.conftest import ELEMENT_TYPES, assert_same_bits, with_cases
from kernels.type_cases import KERNELS, differences

from shardcall_core.element_types import NAMED
from shardcall_server.kernels.array_functions.relayout import Copy, Reshard, Transpose

pytestmark = pytest.mark.long

test_every_bit_is_moved = with_cases(short.test_every_bit_is_moved, {"dtype": ELEMENT_TYPES, "devices": [1, 3]})
test_what_is_computed_of_small_numbers_is_exact = with_cases(
    short.test_what_is_computed_of_small_numbers_is_exact, {"dtype": ELEMENT_TYPES}
)


def test_differences_of_every_order(run, values, dtype):
    hows = [{"n": n, "strategy": strategy} for n in range(6) for strategy in ("halo", "gspmd")]
    run.check_together(differences(run, values, dtype, [*hows, *({"n": n, "mesh": {"x": 1}} for n in (1, 2))]))


def test_identities_and_sequences(run, values, same_bits, dtype):
    cases = []
    meshes = ({"x": 1}, {"x": 8}, {"x": 3}, {"a": 4, "b": 2}, {"a": 2, "b": 2})
    shapes = [(0, 3), (1, 1), (5, 7), (9, 2), (70, 61)]
    for k, shape, mesh in zip((0, 1, -2, 100, -(2**63)), shapes, meshes, strict=True):
        how = {"mesh": mesh, "shape": shape, "dtype": dtype.name, "out_specs": [(None, tuple(mesh))] if k == -2 else ()}
        cases.append((run.call(KERNELS["eye"], np.int64(k), **how), np.eye(*shape, max(k, -(2**40))).astype(dtype)))
    size = 2 if dtype == np.bool_ else 8
    call = run.call(KERNELS["arange"], *np.array([0, 1], dtype), mesh={"x": 3}, size=size)
    cases.append((call, np.arange(size).astype(dtype)))
    x, how = values.small((13,), dtype), {"mesh": {"x": 3}, "strategy": "one_device"}
    cases.append((run.call(KERNELS["sort"], x, **how), run(KERNELS["sort"], x)))
    run.check_together(cases, same_bits)


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
