"""reshard, copy and transpose of every element type, from every layout to every other, with and without padding."""

from functools import partial

import numpy as np
import pytest
from kernels.conftest import KERNELS, assert_same_bits
from kernels.test_relayout import COPY, MESH, RESHARD, SPECS, TRANSPOSE

from shardcall_core.element_types import NAMED

pytestmark = pytest.mark.long


def both(run, x, spec, out_spec, **how):
    """Calls that move an array, and its transpose, from one layout to another."""
    how |= {"in_specs": [spec], "out_specs": [out_spec]}
    return [(run.call(RESHARD, x, **how), x), (run.call(TRANSPOSE, x, **how), x.T)]


def test_every_type_and_layout(run, values, dtype):
    x = values.any((19, 5), dtype)
    calls = [call for spec in SPECS for out_spec in SPECS for call in both(run, x, spec, out_spec, mesh=MESH)]
    padded = {"mesh": {"b": 2, "y": 3}, "in_specs": [[("y", "b")]], "out_specs": [["y"]], "n": 0}
    row = values.any((13,), dtype)  # whose difference of order 0 is the row itself
    run.check_together(
        [*calls, (run.call(KERNELS["diff"], row, **padded), row)], partial(assert_same_bits, any_nan=True)
    )


COMPLEX = [  # mesh, shape, specs of x and of the result
    ({"x": 2, "c": 4}, (1, 8), ("c", None), (None, "x")),
    ({"b": 4, "c": 2}, (2,), [("c", "b")], ["c"]),
    ({"x": 5}, (1, 16), ("x", None), (None, None)),
    ({"x": 8}, (4, 9, 3), ("x", None, None), (None, None, None)),
]


@pytest.mark.parametrize("strategy", ["gspmd", "auto"])
def test_zeros_signs_and_subnormals_of_complex_numbers_are_kept(run, same_bits, strategy):
    calls = []
    for mesh, shape, spec, out_spec in COMPLEX:
        how = {"mesh": mesh, "out_specs": [out_spec], "strategy": strategy}
        for value in (complex(-0.0, 1), complex(-1, -0.0), complex(5e-324, -5e-324)):
            x = np.full(shape, value)
            calls.append((run.call(COPY, x, in_specs=[spec], **how), x))
            calls.append((run.call(TRANSPOSE, x.T, in_specs=[spec[::-1]], **how), x))
    run.check_together(calls, same_bits)


PADDED = [  # what is padded where: mesh, shape, specs of x and of the result
    ({"x": 3}, (5,), [None], ["x"]),
    ({"x": 2, "y": 4}, (5,), ["x"], [("x", "y")]),
    ({"x": 3}, (7, 5), ["x", None], [None, "x"]),
    ({"x": 1, "y": 3, "z": 2}, (3, 8), [None, None], ["z", ("x", "y")]),
    ({"x": 3, "y": 2}, (7, 5), [None, ("x", "y")], ["y", None]),
]


def test_subnormals_and_every_bit_are_kept_where_blocks_are_padded(run, values, same_bits):
    calls = []
    for mesh, shape, spec, out_spec in PADDED:
        how = {"mesh": mesh, "in_specs": [spec], "out_specs": [out_spec], "strategy": "gspmd"}
        for name in ("float16", "bfloat16", "float32", "float64"):
            x = values.subnormal(shape, NAMED[name])
            assert np.count_nonzero(x)
            calls += [(run.call(RESHARD, x, **how), x), (run.call(TRANSPOSE, x.T, **how), x)]
        for name in ("float16", "float32", "float8_e5m2"):
            x = values.any(shape, NAMED[name])
            calls.append((run.call(RESHARD, x, **how), x))
    run.check_together(calls, same_bits)


GATHERED = [
    (("a", "b"), (None, None)),
    ((None, ("a", "b")), (None, None)),
    ((None, ("b", "a")), (None, "b")),
    (("a", "b"), (None, "b")),
    (("a", "b"), ("a", None)),
]
"""Splits, and such over fewer mesh axes."""


@pytest.mark.parametrize("name", ["int4", "bool", "float8_e5m2", "float64"])
def test_gathered_by_hand_and_by_the_compiler_it_is_the_same(run, values, same_bits, name):
    x, calls = values.any((16, 24, 3), NAMED[name]), []
    for spec, out_spec in GATHERED:
        for strategy in ("all_gather", "gspmd"):
            how = {"mesh": MESH, "in_specs": [(*spec, None)], "strategy": strategy}
            calls.append((run.call(RESHARD, x, **how, out_specs=[(*out_spec, None)]), x))
            calls.append((run.call(TRANSPOSE, x, **how, out_specs=[(None, *reversed(out_spec))]), x.T))
    run.check_together(calls, same_bits)
