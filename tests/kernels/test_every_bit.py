"""Moves keep every value of 8 and 16 bits, in all layouts, whether blocks are padded or not.

XLA:CPU made zeros of bfloat16's subnormal numbers in some layouts whose blocks are padded, on processors with
AVX512-BF16, which `launcher.py` turns off.
"""

import itertools

import jax
import numpy as np
import pytest

from shardcall_core.layouts.layout import padded_shape
from shardcall_server.compilation.program import build_mesh, named_sharding
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


def named_type(name, element_types):
    return next(dtype for dtype in element_types if dtype.name == name)


def every_pattern(dtype, shape):
    """An array that repeats all values of a type, including NaN of every payload."""
    bits = np.arange(np.prod(shape)) % 2 ** (8 * dtype.itemsize)
    return bits.astype(f"uint{8 * dtype.itemsize}").view(dtype).reshape(shape)


def assert_same_bits(result, expected):
    """Checks that bits are equal; NaN of bfloat16 count as equal, since XLA:CPU converts padded blocks to float32."""
    bits = [np.ascontiguousarray(array).view(f"uint{8 * array.dtype.itemsize}") for array in (result, expected)]
    differ = bits[0] != bits[1]
    if expected.dtype.name == "bfloat16":
        differ &= ~((bits[0] & 0x7FFF > 0x7F80) & (bits[1] & 0x7FFF > 0x7F80))
    assert not differ.any(), f"{int(differ.sum())} of {differ.size} differ, first {bits[1][differ][0]:#x}"


def moved_together(run, x, devices):
    """The results of all moves of an array, from one program that is compiled once, and the expected ones."""
    calls = [
        run.resolve(kernel, x, mesh={"x": devices}, in_specs=[spec], out_specs=[out_spec])
        for kernel, spec, out_spec in MOVES
    ]
    mesh = build_mesh(calls[0].problem.mesh, calls[0].device_ids)
    arrays = []
    for call in calls:
        (spec,) = call.problem.in_specs
        padded = np.zeros(padded_shape(x.shape, spec, call.problem.mesh), x.dtype)
        padded[: x.shape[0], : x.shape[1]] = x
        arrays.append(jax.device_put(padded, named_sharding(mesh, spec)))
    programs = [call.strategy.build(call.problem, mesh) for call in calls]
    shardings = [named_sharding(mesh, call.problem.out_specs[0]) for call in calls]
    together = jax.jit(
        lambda arrays: [program(array)[0] for program, array in zip(programs, arrays, strict=True)],
        out_shardings=shardings,
    )
    for (kernel, *_), call, array in zip(MOVES, calls, together(arrays), strict=True):
        rows, columns = call.problem.results[0].shape
        yield np.asarray(array)[:rows, :columns], x.T if kernel.name == "transpose" else x


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        *(("bfloat16", 1), ("bfloat16", 3), ("float16", 5)),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("bfloat16", 8), ("float8_e5m2", 3))),
    ],
)
def test_every_value_is_moved_bit_for_bit(run, element_types, name, devices):
    x = every_pattern(named_type(name, element_types), UNEVEN)
    for result, expected in moved_together(run, x, devices):
        assert_same_bits(result, expected)


@pytest.mark.parametrize("shape", [EVEN, UNEVEN])
@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", TYPES)
def test_every_layout_moves_every_value_bit_for_bit(run, element_types, name, devices, shape):
    x = every_pattern(named_type(name, element_types), shape)
    for kernel, spec, out_spec in MOVES:
        resolved = run.resolve(kernel, x, mesh={"x": devices}, in_specs=[spec], out_specs=[out_spec])
        for strategy in {resolved.strategy.name, "gspmd"}:
            how = {"mesh": {"x": devices}, "in_specs": [spec], "out_specs": [out_spec], "strategy": strategy}
            result = run(kernel, x, padding=1, **how)
            expected = x.T if kernel.name == "transpose" else x
            assert_same_bits(result, expected)
    run.programs.clear()
