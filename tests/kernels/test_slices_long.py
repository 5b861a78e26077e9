"""The tests of `test_slices.py` that take long."""

import re

import numpy as np
import pytest
from kernels import test_slices as short
from kernels.conftest import COLLECTIVE, with_cases
from kernels.test_slices import BOTH_SHARDED, KERNELS, LAYOUTS, ROWS, sharded_assignments, sliced

from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.analysis import collectives

pytestmark = pytest.mark.long


OTHER_ROWS = [np.s_[:0], np.s_[60:], np.s_[:-1], np.s_[1:], np.s_[::-60], np.s_[::60], np.s_[7:39:3], np.s_[30:20:-1]]


BOTH = [np.s_[1:-1, 1:-1], np.s_[::-1, 4], np.s_[30:, ::-3], np.s_[17, 2:9], np.s_[5:-20:2, 3:-2]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [61, 64, 5])
def test_all_slices_of_rows(run, values, same_bits, layout, count):
    keys = [key for key in (*ROWS, *OTHER_ROWS) if isinstance(key, slice)]
    run.check_together([sliced(run, values.normal((count, 3)), key, layout) for key in keys], same_bits, 7)


def test_slices_along_two_sharded_axes(run, values, same_bits):
    x = values.normal((61, 14))
    run.check_together([sliced(run, x, key, layout) for key in BOTH for layout in BOTH_SHARDED], same_bits, 7)


def test_sharded_values_are_assigned(run, values, same_bits):
    layouts = [*LAYOUTS, *BOTH_SHARDED]
    run.check_together([call for layout in layouts for call in sharded_assignments(run, values, layout)], same_bits, 7)


test_a_loop_of_starts_compiles_once = with_cases(short.test_a_loop_of_starts_compiles_once, {"sizes": [(20,), (59,)]})
X, STARTS = ArrayType((4096, 16), np.dtype("float32")), ArrayType((2,), np.dtype("int64"))


def text_of(run, name, *operands, **how):
    return run.program(KERNELS[name], *operands, **how).text


MOVED = [  # sizes, steps, and the most bytes that a device receives
    ((4094, 16), (1, 1), 2 * 64),
    ((1, 16), (1, 1), 2 * 64),
    ((4, 16), (1, 1), 8 * 64 * 2),
    ((64, 16), (64, 1), 63 * 64 + 64),
    ((4096, 16), (-1, 1), 512 * 64),
    ((2048, 16), (2, 1), 64),
]


@pytest.mark.parametrize(("sizes", "steps", "max_bytes"), MOVED)
def test_slices_move_what_they_must(run, sizes, steps, max_bytes):
    text = text_of(run, "getitem", X, STARTS, mesh={"x": 8}, sizes=sizes, steps=steps)
    sent = re.findall(
        r"= u32\[([\d,]+)\][^=\n]*(?:all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)", text
    )
    assert sum(4 * int(np.prod([int(n) for n in shape.split(",")])) for shape in sent) <= max_bytes
    assert "all-gather" not in text


MIB = 2**20


LARGE = [  # of 1 GiB of float32 on 8 devices: the shape, and the sizes of slices of 1 MiB
    ((256 * MIB,), (MIB // 4,)),
    ((16384, 16384), (16, 16384)),
    ((MIB // 4, 1024), (256, 1024)),
    ((1024, MIB // 4), (1, MIB // 4)),
]


@pytest.mark.parametrize(("shape", "sizes"), LARGE)
def test_a_short_slice_of_a_large_array_moves_little(run, shape, sizes):
    x, starts = ArrayType(shape, np.dtype("float32")), ArrayType((len(shape),), np.dtype("int64"))
    text = text_of(run, "getitem", x, starts, mesh={"x": 8}, sizes=sizes, steps=(1,) * len(shape))
    uses = {use.operation: use.bytes_per_device for use in collectives(text)}
    # A reduce-scatter's results are the blocks: all devices' blocks together are what a device sends and adds.
    moved = uses.pop("reduce-scatter", 0) * 8 + sum(uses.values())
    assert 0 < moved <= 1.1 * MIB


@pytest.mark.parametrize("sizes", [(20,), (59,)])
def test_a_loop_of_assignments_compiles_once(run, values, same_bits, sizes):
    x, assigned = values.normal((61,)), values.normal(sizes)
    run.programs.clear()
    for k in range(62 - sizes[0]):
        how = {"mesh": {"x": 8}, "in_specs": [("x",), ("x",)], "sizes": sizes, "steps": (1,)}
        expected = x.copy()
        expected[k : k + sizes[0]] = assigned
        same_bits(run(KERNELS["setitem"], x, assigned, np.array([k]), **how), expected)
    assert len(run.programs) == run.is_local


def test_nothing_of_the_array_moves_where_values_are_assigned(run):
    values, how = ArrayType((4094, 16), np.dtype("float32")), {"mesh": {"x": 8}, "sizes": (4094, 16), "steps": (1, 1)}
    for operand in (values, ArrayType((), np.dtype("float32"))):
        assert run.resolve(KERNELS["setitem"], X, operand, STARTS, **how).strategy.name == "blocks"
        assert not COLLECTIVE.search(text_of(run, "setitem", X, operand, STARTS, **how))
    how["in_specs"] = [("x", None), ("x", None)]
    assert run.resolve(KERNELS["setitem"], X, values, STARTS, **how).strategy.name == "exchange"
    assert "all-gather" not in text_of(run, "setitem", X, values, STARTS, **how)
