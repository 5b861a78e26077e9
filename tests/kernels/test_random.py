"""Random arrays are jax.random's, the same on every mesh, and generated on the devices that hold them."""

import jax
import numpy as np
import pytest

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.elementwise.random import Normal, Permutation, RandInt, Uniform

UNIFORM, NORMAL, RANDINT, PERMUTATION = Uniform(), Normal(), RandInt(), Permutation()
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


SHAPES = [(24, 16), (13, 5)]


# Threefry takes XLA a second to compile, so that most types are in the long form.
@pytest.mark.parametrize("name", ["uint64"])
def test_every_integer_type_has_all_its_values(run, name):
    low, high = (1, 9) if name.startswith("u") else (-4, 4)
    result = run(RANDINT, seed(5), seed(low), seed(high), mesh={"x": 8}, shape=(41, 5), dtype=name)
    assert result.dtype == name
    assert set(result.ravel().tolist()) == set(range(low, high))


def test_bounds_mean_and_deviation_are_operands(run):
    how = {"mesh": {"x": 8}, "shape": (4096,)}
    result = run(UNIFORM, seed(), np.float32(-3), np.int8(5), **how)
    assert result.min() >= -3
    assert result.max() < 5
    assert abs(result.mean() - 1) < 0.2
    result = run(NORMAL, seed(), np.float64(10), np.float64(0.5), **how)
    assert abs(result.mean() - 10) < 0.05
    assert abs(result.std() - 0.5) < 0.05


def test_any_seed_gives_jaxs_values_on_every_mesh(run, same):
    """One program for all seeds."""
    for (mesh, spec), shape in ((LAYOUTS[4], SHAPES[1]), (LAYOUTS[2], SHAPES[0])):
        how = {"mesh": mesh, "out_specs": [spec], "shape": shape, "dtype": "float32"}
        for number in (0, 42, -1, 2**63 - 1, -(2**63)):
            drawn = jax.random.uniform(jax.random.key(number), shape, np.float32)
            same(run(UNIFORM, seed(number), **how), np.asarray(drawn))


def test_seeds_of_any_integer_type_and_other_seeds_give_other_values(run):
    how = {"mesh": {"x": 8}, "shape": (16,), "dtype": "float32"}
    first = run(UNIFORM, seed(42), **how)
    assert (run(UNIFORM, seed(42, np.uint8), **how) == first).all()
    negative = [run(UNIFORM, seed(-1, dtype), **how) for dtype in (np.int8, np.int64)]
    assert (negative[0] == negative[1]).all()
    assert (run(UNIFORM, seed(43), **how) != first).all()


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
        assert error.reason == (Reason.PARAMETER_TYPE if bad in ("3", 1.5, None) else Reason.INVALID_PARAMETER)
        assert error.field == "shape"
    assert (
        refused(UNIFORM, integer).message
        == "kernel 'uniform' needs parameter 'shape', which was left out; give shape=…"
    )
    assert refused(PERMUTATION, integer, array, axis=1).reason == Reason.AXIS_OUT_OF_RANGE
    assert refused(PERMUTATION, integer, integer).field == "x"
    assert refused(PERMUTATION, real, array).field == "seed"
