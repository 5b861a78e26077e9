"""The tests of `test_random.py` that take long."""

import itertools

import jax
import numpy as np
import pytest
from kernels.test_random import LAYOUTS, LONG, NORMAL, PERMUTATION, RANDINT, SHAPES, UNIFORM, seed
from pairs import pairs_of

pytestmark = pytest.mark.long

COLLECTIVES = ("all-gather", "collective-permute", "all-to-all", "all-reduce", "reduce-scatter")


def key(value=42):
    return jax.random.key(value)


@pytest.mark.parametrize(("layout", "shape"), [*zip(LAYOUTS, itertools.cycle(SHAPES), strict=False)])
def test_values_do_not_depend_on_the_mesh(run, same, layout, shape):
    check_layout(run, same, layout, shape)


@pytest.mark.parametrize(("layout", "shape"), [*itertools.product(LAYOUTS, SHAPES)])
def test_values_of_no_shape_depend_on_the_mesh(run, same, layout, shape):
    check_layout(run, same, layout, shape)


def check_layout(run, same, layout, shape):
    mesh, spec = layout
    how = {"mesh": mesh, "out_specs": [spec], "shape": shape, "dtype": "float32"}
    same(run(UNIFORM, seed(), **how), np.asarray(jax.random.uniform(key(), shape, np.float32)))


@pytest.mark.parametrize("shape", [(), (0,), (9, 0), (3, 5, 7), *(pytest.param(n, marks=LONG) for n in [(1,), (17,)])])
@pytest.mark.parametrize("mesh", [pytest.param({"x": 1}, marks=LONG), {"x": 8}], ids=str)
def test_any_shape(run, same, mesh, shape):
    result = run(NORMAL, seed(7), mesh=mesh, shape=shape, dtype="float64")
    same(result, np.asarray(jax.random.normal(key(7), shape, np.float64)))


FLOATS = ("float16", "bfloat16", "float32", "float64")


TYPES = [*((UNIFORM, name) for name in FLOATS), *((NORMAL, name) for name in (*FLOATS, "complex64", "complex128"))]


SHORT_TYPES = [(UNIFORM, "bfloat16"), (NORMAL, "complex64")]


@pytest.mark.parametrize(("kernel", "name"), [pytest.param(*t, marks=() if t in SHORT_TYPES else LONG) for t in TYPES])
def test_every_floating_type(run, same, kernel, name):
    drawn = {"uniform": jax.random.uniform, "normal": jax.random.normal}[kernel.name]
    result = run(kernel, seed(3), mesh={"x": 8}, shape=(13,), dtype=name)
    same(result, np.asarray(drawn(key(3), (13,), name)))


def test_integers_are_jaxs(run):
    how = {"mesh": {"x": 8}, "shape": (41, 5)}
    result = run(RANDINT, seed(5), seed(0), seed(10**12), **how)
    assert (result == np.asarray(jax.random.randint(key(5), (41, 5), 0, 10**12))).all()
    empty = run(RANDINT, seed(5), seed(4), seed(4), **how)
    assert set(empty.ravel().tolist()) == {4}


@pytest.mark.parametrize("kernel", [UNIFORM, pytest.param(NORMAL, marks=LONG), pytest.param(RANDINT, marks=LONG)])
def test_nothing_moves(run, kernel):
    bounds = (seed(0), seed(9)) if kernel is RANDINT else ()
    for mesh, spec in LAYOUTS[::2]:
        how = {"mesh": mesh, "out_specs": [spec], "shape": (24, 16)}
        text = run.program(kernel, seed(), *bounds, **how, dtype="int64" if bounds else "float32").text
        assert not [word for word in COLLECTIVES if word in text]


@pytest.mark.parametrize(("axis", "spec"), [(0, ("x", None)), (1, ("x", None)), (-1, (None, "x"))])
@pytest.mark.parametrize("shape", [(13, 5), (0, 2), *(pytest.param(n, marks=LONG) for n in [(16, 8), (1, 3)])])
def test_permutation_is_jaxs_of_the_indices(run, values, same, shape, axis, spec):
    x = values.normal(shape)
    order = np.asarray(jax.random.permutation(key(), shape[axis]))
    result = run(PERMUTATION, seed(), x, mesh={"x": 8}, in_specs=[None, spec], axis=axis, padding=np.nan)
    same(result, np.take(x, order, axis))


def test_permutation_takes_every_element_type(run, values, same, dtype):
    x = values.any((9,), dtype)
    order = np.asarray(jax.random.permutation(key(), 9))
    result = run(PERMUTATION, seed(), x, mesh={"x": 8})
    assert result.tobytes() == x[order].tobytes()


@pytest.mark.parametrize(
    ("name", "out_spec"), pairs_of(["bfloat16", "float32", "complex64"], [("x", None), (None, "x")])
)
def test_zeros_keep_their_sign_and_subnormals_stay(run, values, name, out_spec):
    x = values.zeros_and_subnormals((13, 9), name)
    order = np.asarray(jax.random.permutation(key(), 13))
    how = {"mesh": {"x": 8}, "in_specs": [None, ("x", None)], "out_specs": [out_spec]}
    assert run(PERMUTATION, seed(), x, **how).tobytes() == x[order].tobytes()
