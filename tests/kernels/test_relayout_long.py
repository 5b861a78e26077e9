"""The tests of `test_relayout.py` that take long."""

import numpy as np
import pytest
from kernels.test_relayout import MESH, SPECS, assert_same_bits
from pairs import pairs_of

from shardcall_server.kernels.array_functions.relayout import Copy, Reshard, Transpose
from shardcall_server.kernels.stencils.diff import Diff

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("spec", "out_spec"), list(zip(SPECS, [*SPECS[1:], SPECS[0]], strict=True)))
def test_reshard_keeps_the_array(run, values, spec, out_spec):
    x = values.normal((19, 5))
    how = {"mesh": MESH, "in_specs": [spec], "out_specs": [out_spec], "padding": np.nan}
    assert_same_bits(run(Reshard(), x, **how), x)


@pytest.mark.parametrize("name", ["bool", "uint4", "float16", "bfloat16", "float8_e4m3fn", "float32", "complex64"])
def test_every_bit_is_kept(run, values, element_types, name):
    dtype = next(element_type for element_type in element_types if element_type.name == name)
    x = values.any((19, 5), dtype)  # NaN of every payload among them
    assert_same_bits(run(Reshard(), x, mesh=MESH, in_specs=[("a", "b")], out_specs=[(None, ("a", "b"))]), x)


COMPLEX = [  # mesh, shape, specs of x and of the result
    ({"x": 2, "c": 4}, (1, 8), ("c", None), (None, "x")),
    ({"b": 4, "c": 2}, (2,), [("c", "b")], ["c"]),
    ({"x": 5}, (1, 16), ("x", None), (None, None)),
    ({"x": 8}, (4, 9, 3), ("x", None, None), (None, None, None)),
]


@pytest.mark.parametrize(("strategy", "layout"), pairs_of(["gspmd", "auto"], COMPLEX))
def test_zeros_signs_and_subnormals_of_complex_numbers_are_kept(run, layout, strategy):
    mesh, shape, spec, out_spec = layout
    how = {"mesh": mesh, "in_specs": [spec], "out_specs": [out_spec], "strategy": strategy}
    for value in (complex(-0.0, 1), complex(-1, -0.0), complex(5e-324, -5e-324)):
        x = np.full(shape, value)
        assert_same_bits(run(Copy(), x, **how), x)
        assert_same_bits(run(Transpose(), x.T, **how | {"in_specs": [spec[::-1]]}), x)


def test_a_difference_of_order_0_keeps_every_bit(run, values, dtype):
    x = values.any((13,), dtype)
    how = {"mesh": {"b": 2, "y": 3}, "in_specs": [[("y", "b")]], "out_specs": [["y"]], "n": 0}
    assert_same_bits(run(Diff(), x, **how), x)


PADDED = [  # what is padded where: mesh, shape, specs of x and of the result
    ({"x": 3}, (5,), [None], ["x"]),
    ({"x": 2, "y": 4}, (5,), ["x"], [("x", "y")]),
    ({"x": 3}, (7, 5), ["x", None], [None, "x"]),
    ({"x": 1, "y": 3, "z": 2}, (3, 8), [None, None], ["z", ("x", "y")]),
    ({"x": 3, "y": 2}, (7, 5), [None, ("x", "y")], ["y", None]),
]


@pytest.mark.parametrize(("padded", "name"), pairs_of(PADDED, ["float16", "bfloat16", "float32", "float64"]))
def test_subnormals_are_kept_where_blocks_are_padded(run, values, element_types, padded, name):
    mesh, shape, spec, out_spec = padded
    dtype = next(element_type for element_type in element_types if element_type.name == name)
    x = values.subnormal(shape, dtype)
    assert np.count_nonzero(x)
    how = {"mesh": mesh, "in_specs": [spec], "out_specs": [out_spec], "strategy": "gspmd"}
    assert_same_bits(run(Reshard(), x, **how), x)
    assert_same_bits(run(Transpose(), x.T, **how), x)


@pytest.mark.parametrize(("padded", "name"), pairs_of(PADDED, ["float16", "float32", "float8_e5m2"]))
def test_every_bit_is_kept_where_blocks_are_padded(run, values, element_types, padded, name):
    mesh, shape, spec, out_spec = padded
    dtype = next(element_type for element_type in element_types if element_type.name == name)
    x = values.any(shape, dtype)
    how = {"mesh": mesh, "in_specs": [spec], "out_specs": [out_spec], "strategy": "gspmd"}
    assert_same_bits(run(Reshard(), x, **how), x)


@pytest.mark.parametrize(("mesh", "shape", "spec", "out_spec"), PADDED)
def test_a_bfloat16_that_is_no_number_stays_none(run, values, element_types, mesh, shape, spec, out_spec):
    dtype = next(element_type for element_type in element_types if element_type.name == "bfloat16")
    x = np.full(shape, 0xFF81, np.uint16).view(dtype)  # a signalling NaN
    how = {"mesh": mesh, "in_specs": [spec], "out_specs": [out_spec], "strategy": "gspmd"}
    assert np.isnan(run(Reshard(), x, **how).astype(np.float32)).all()


@pytest.mark.parametrize("out_spec", SPECS)
@pytest.mark.parametrize("spec", SPECS)
def test_every_type_and_layout(run, values, dtype, spec, out_spec):
    run.programs.clear()
    x = values.any((19, 5), dtype)
    how = {"mesh": MESH, "in_specs": [spec], "out_specs": [out_spec]}
    assert_same_bits(run(Reshard(), x, **how), x)
    assert_same_bits(run(Transpose(), x, **how), x.T)


GATHERED = [
    (("a", "b"), (None, None)),
    ((None, ("a", "b")), (None, None)),
    ((None, ("b", "a")), (None, "b")),
    (("a", "b"), (None, "b")),
    (("a", "b"), ("a", None)),
]
"""Splits, and such over fewer mesh axes."""


@pytest.mark.parametrize(("strategy", "specs"), pairs_of(["all_gather", "gspmd"], GATHERED))
@pytest.mark.parametrize(
    "name", ["int4", *(pytest.param(name, marks=pytest.mark.long) for name in ("bool", "float8_e5m2", "float64"))]
)
def test_gathered_by_hand_and_by_the_compiler_it_is_the_same(run, values, element_types, name, strategy, specs):
    spec, out_spec = specs
    dtype = next(element_type for element_type in element_types if element_type.name == name)
    x = values.any((16, 24, 3), dtype)
    how = {"mesh": MESH, "in_specs": [(*spec, None)], "strategy": strategy}
    assert_same_bits(run(Reshard(), x, **how, out_specs=[(*out_spec, None)]), x)
    turned = run(Transpose(), x, **how, out_specs=[(None, *reversed(out_spec))])
    assert_same_bits(turned, x.T)
