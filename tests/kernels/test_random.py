"""Random arrays are jax.random's, the same on every mesh, and generated on the devices that hold them."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.elementwise.random import Normal, Permutation, RandInt, Uniform

UNIFORM, NORMAL, RANDINT, PERMUTATION = Uniform(), Normal(), RandInt(), Permutation()
COLLECTIVES = ("all-gather", "collective-permute", "all-to-all", "all-reduce", "reduce-scatter")
LAYOUTS = [  # mesh, spec of a matrix
    ({"x": 8}, None),
    ({"x": 8}, (None, "x")),
    ({"a": 4, "b": 2}, ("a", "b")),
    ({"a": 2, "b": 4}, (("b", "a"), None)),
    ({"x": 3}, ("x", None)),
    ({"a": 4, "b": 2}, ()),
]


def seed(value=42, dtype=np.int64):
    return np.asarray(value, dtype)


def key(value=42):
    return jax.random.key(value)


SHAPES = [(24, 16), (13, 5)]
LONG = pytest.mark.long  # Threefry takes XLA a second to compile


@pytest.mark.parametrize(("layout", "shape"), [*zip(LAYOUTS, itertools.cycle(SHAPES), strict=False)])
def test_values_do_not_depend_on_the_mesh(run, same, layout, shape):
    check_layout(run, same, layout, shape)


@pytest.mark.long
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
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = [*((UNIFORM, name) for name in FLOATS), *((NORMAL, name) for name in (*FLOATS, "complex64", "complex128"))]
SHORT_TYPES = [(UNIFORM, "bfloat16"), (NORMAL, "complex64")]


@pytest.mark.parametrize(("kernel", "name"), [pytest.param(*t, marks=() if t in SHORT_TYPES else LONG) for t in TYPES])
def test_every_floating_type(run, same, kernel, name):
    drawn = {"uniform": jax.random.uniform, "normal": jax.random.normal}[kernel.name]
    result = run(kernel, seed(3), mesh={"x": 8}, shape=(13,), dtype=name)
    same(result, np.asarray(drawn(key(3), (13,), name)))


@pytest.mark.parametrize("name", [*(pytest.param(n, marks=LONG) for n in INTEGERS[:-1]), "uint64"])
def test_every_integer_type_has_all_its_values(run, name):
    low, high = (1, 9) if name.startswith("u") else (-4, 4)
    result = run(RANDINT, seed(5), seed(low), seed(high), mesh={"x": 8}, shape=(41, 5), dtype=name)
    assert result.dtype == name
    assert set(result.ravel().tolist()) == set(range(low, high))


def test_integers_are_jaxs(run):
    how = {"mesh": {"x": 8}, "shape": (41, 5)}
    result = run(RANDINT, seed(5), seed(0), seed(10**12), **how)
    assert (result == np.asarray(jax.random.randint(key(5), (41, 5), 0, 10**12))).all()
    empty = run(RANDINT, seed(5), seed(4), seed(4), **how)
    assert set(empty.ravel().tolist()) == {4}


def test_bounds_mean_and_deviation_are_operands(run):
    how = {"mesh": {"x": 8}, "shape": (4096,)}
    result = run(UNIFORM, seed(), np.float32(-3), np.int8(5), **how)
    assert result.min() >= -3
    assert result.max() < 5
    assert abs(result.mean() - 1) < 0.2
    result = run(NORMAL, seed(), np.float64(10), np.float64(0.5), **how)
    assert abs(result.mean() - 10) < 0.05
    assert abs(result.std() - 0.5) < 0.05


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(range(len(LAYOUTS))))
def test_any_seed_gives_the_same_values_on_every_mesh(run, same, number, layout):
    mesh, spec = LAYOUTS[layout]
    how = {"shape": SHAPES[layout % 2], "dtype": "float32"}  # programs that are there already
    one, many = {"mesh": {"x": 3}, "out_specs": [("x", None)]}, {"mesh": mesh, "out_specs": [spec]}
    if layout % 2 == 0:
        one = {"mesh": {"x": 8}, "out_specs": [None]}
    same(run(UNIFORM, seed(number), **many, **how), run(UNIFORM, seed(number), **one, **how))


def test_seeds_of_any_integer_type_and_other_seeds_give_other_values(run):
    how = {"mesh": {"x": 8}, "shape": (16,), "dtype": "float32"}
    first = run(UNIFORM, seed(42), **how)
    assert (run(UNIFORM, seed(42, np.uint8), **how) == first).all()
    negative = [run(UNIFORM, seed(-1, dtype), **how) for dtype in (np.int8, np.int64)]
    assert (negative[0] == negative[1]).all()
    assert (run(UNIFORM, seed(43), **how) != first).all()


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


@pytest.mark.long
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


def test_refusals(refused):
    integer, real, array = ArrayType((), np.dtype(int)), ArrayType((), np.dtype(float)), ArrayType((3,), np.dtype(int))
    for kernel in (UNIFORM, NORMAL):
        error = refused(kernel, real, shape=3)
        assert (error.reason, error.field) == (Reason.INVALID_OPERAND, "seed")
        assert "give an integer, as a scalar" in error.message
        assert refused(kernel, array, shape=3).field == "seed"
        error = refused(kernel, integer, shape=3, dtype="int8")
        assert error.reason == Reason.UNSUPPORTED_ELEMENT_TYPE
        assert "float16, bfloat16, float32, float64" in error.message
        assert refused(kernel, integer, array, shape=3).reason == Reason.INVALID_OPERAND
    assert refused(RANDINT, integer, real, integer, shape=3).field == "low"
    assert refused(RANDINT, integer, integer, shape=3).field == "high"
    for bad in (-1, (2, -1), (1,) * 33, "3", 1.5, None):
        error = refused(UNIFORM, integer, shape=bad)
        type_is_wrong = bad in ("3", 1.5, None)
        assert error.reason == (Reason.PARAMETER_TYPE if type_is_wrong else Reason.INVALID_PARAMETER)
        assert error.field == "shape"
    assert (
        refused(UNIFORM, integer).message
        == "kernel 'uniform' needs parameter 'shape', which was left out; give shape=…"
    )
    assert refused(PERMUTATION, integer, array, axis=1).reason == Reason.AXIS_OUT_OF_RANGE
    assert refused(PERMUTATION, integer, integer).field == "x"
    assert refused(PERMUTATION, real, array).field == "seed"
