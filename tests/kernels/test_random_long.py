"""The tests of `test_random.py` that take long."""

import itertools

import jax
import numpy as np
import pytest
from kernels import test_random as short
from kernels.conftest import COLLECTIVE, with_cases
from kernels.test_random import LAYOUTS, NORMAL, PERMUTATION, RANDINT, SHAPES, UNIFORM, seed

pytestmark = pytest.mark.long


def key(value=42):
    return jax.random.key(value)


@pytest.mark.parametrize(("layout", "shape"), [*itertools.product(LAYOUTS, SHAPES)])
def test_values_do_not_depend_on_the_mesh(run, same, layout, shape):
    (mesh, spec), expected = layout, np.asarray(jax.random.uniform(key(), shape, np.float32))
    same(run(UNIFORM, seed(), mesh=mesh, out_specs=[spec], shape=shape, dtype="float32"), expected)


def test_any_shape(run):
    shapes = [(), (0,), (9, 0), (3, 5, 7), (1,), (17,)]
    run.check_together(
        (
            run.call(NORMAL, seed(7), mesh={"x": devices}, shape=shape, dtype="float64"),
            np.asarray(jax.random.normal(key(7), shape, np.float64)),
        )
        for devices in (1, 8)
        for shape in shapes
    )


FLOATS = ("float16", "bfloat16", "float32", "float64")


TYPES = [*((UNIFORM, name) for name in FLOATS), *((NORMAL, name) for name in (*FLOATS, "complex64", "complex128"))]


INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
test_every_integer_type_has_all_its_values = with_cases(
    short.test_every_integer_type_has_all_its_values, {"name": INTEGERS}
)


@pytest.mark.parametrize(("kernel", "name"), TYPES)
def test_every_floating_type(run, same, kernel, name):
    drawn = {"uniform": jax.random.uniform, "normal": jax.random.normal}[kernel.name]
    same(run(kernel, seed(3), mesh={"x": 8}, shape=(13,), dtype=name), np.asarray(drawn(key(3), (13,), name)))


def test_integers_are_jaxs(run):
    how = {"mesh": {"x": 8}, "shape": (41, 5)}
    result = run(RANDINT, seed(5), seed(0), seed(10**12), **how)
    assert (result == np.asarray(jax.random.randint(key(5), (41, 5), 0, 10**12))).all()
    assert set(run(RANDINT, seed(5), seed(4), seed(4), **how).ravel().tolist()) == {4}


@pytest.mark.parametrize("kernel", [UNIFORM, NORMAL, RANDINT])
def test_nothing_moves(run, kernel):
    bounds = (seed(0), seed(9)) if kernel is RANDINT else ()
    for mesh, spec in LAYOUTS[::2]:
        how = {"mesh": mesh, "out_specs": [spec], "shape": (24, 16)}
        text = run.program(kernel, seed(), *bounds, **how, dtype="int64" if bounds else "float32").text
        assert not COLLECTIVE.search(text)


@pytest.mark.parametrize(("axis", "spec"), [(0, ("x", None)), (1, ("x", None)), (-1, (None, "x"))])
@pytest.mark.parametrize("shape", [(13, 5), (0, 2), (16, 8), (1, 3)])
def test_permutation_is_jaxs_of_the_indices(run, values, same, shape, axis, spec):
    x = values.normal(shape)
    order = np.asarray(jax.random.permutation(key(), shape[axis]))
    result = run(PERMUTATION, seed(), x, mesh={"x": 8}, in_specs=[None, spec], axis=axis, padding=np.nan)
    same(result, np.take(x, order, axis))


def test_permutation_takes_every_element_type(run, values, same, dtype):
    x = values.any((9,), dtype)
    order = np.asarray(jax.random.permutation(key(), 9))
    assert run(PERMUTATION, seed(), x, mesh={"x": 8}).tobytes() == x[order].tobytes()
