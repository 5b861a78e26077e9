"""The tests of `test_shift.py` that take long."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_shift import SHIFT, X8, check, expected
from pairs import pairs_of

pytestmark = pytest.mark.long

LAYOUTS = [
    X8,
    {"mesh": {"x": 1}, "in_specs": [("x", None)]},
    {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]},
    {"mesh": {"a": 2, "b": 4}, "in_specs": [(("b", "a"), None)]},
]


@pytest.mark.parametrize(
    ("layout", "strategy", "shape", "shift", "axis", "mode"),
    [
        *itertools.product(
            LAYOUTS, ["halo", "gspmd"], [(64, 6), (61, 9), (1, 3)], [1, -2, 5, -70], [0, -1], ["fill", "periodic"]
        )
    ],
)
def test_the_complete_table_moves(run, values, same, layout, strategy, shape, shift, axis, mode):
    run.programs.clear()
    check(run, same, values.normal(shape), layout, strategy, shift, axis, mode)


@pytest.mark.parametrize("shape", [(13, 7), (0, 3), (4, 0)])
def test_several_axes_may_be_sharded(run, values, same, shape):
    for axis, strategy in ((0, "halo"), (1, "halo"), (1, "gspmd")):
        check(run, same, values.normal(shape), LAYOUTS[2], strategy, 2, axis, "periodic")


@pytest.mark.parametrize("name", ["bfloat16", "float32", "complex64"])
def test_zeros_keep_their_sign_and_subnormals_stay(run, values, name):
    x, fill = values.zeros_and_subnormals((13, 9), name), values.zeros_and_subnormals((1,), name).reshape(())
    for shift, filled in ((2, fill), (-2, None), (7, fill)):
        how = {"shift": shift, "axis": 0, "mode": "periodic" if filled is None else "fill"}
        result = run(SHIFT, x, filled, strategy="gspmd", **how, **X8)
        assert result.tobytes() == expected(x, shift, 0, how["mode"], fill).tobytes()


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), fill=st.integers(-(2**31), 2**31 - 1))
def test_shifting_back_restores_what_stayed(run, same, seed, fill):
    x = np.random.default_rng(seed).integers(-(2**31), 2**31, (61, 2)).astype(np.int32)
    there = run(SHIFT, x, np.int32(fill), shift=3, axis=0, **X8)
    back = run(SHIFT, there, np.int32(fill), shift=-3, axis=0, **X8)
    same(back[:-3], x[:-3])
    assert (back[-3:] == fill).all()


@pytest.mark.parametrize(
    ("strategy", "name"), pairs_of(["halo", "gspmd"], ["float8_e5m2", "bfloat16", "float32", "float16"])
)
def test_every_bit_is_kept(run, values, element_types, name, strategy):
    dtype = next(element_type for element_type in element_types if element_type.name == name)
    every = np.arange(2 ** min(8 * dtype.itemsize, 16)).astype(f"u{dtype.itemsize}")
    x = (every if dtype.itemsize < 4 else every + np.uint32(0x7F800000)).view(dtype)  # NaN of every payload among them
    for mesh in ({"x": 1}, {"x": 3}):
        shifted = run(SHIFT, x, shift=1, mode="periodic", mesh=mesh, strategy=strategy)
        assert shifted.tobytes() == np.roll(x, 1).tobytes()
