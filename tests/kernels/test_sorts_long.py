"""The tests of `test_sorts.py` that take long."""

import numpy as np
import pytest
from kernels.test_sorts import KERNELS, LAYOUTS, SHAPE
from pairs import pairs_of

pytestmark = pytest.mark.long


@pytest.mark.parametrize(("layout", "axis"), pairs_of(LAYOUTS, [-1, 0, None]))
def test_sorts_are_numpys(run, values, same, layout, axis):
    mesh, spec = layout
    x = np.round(values.normal(SHAPE))
    x[1, 2, 3:5], x[0, 0, :4] = np.nan, (np.inf, -np.inf, 0.0, -0.0)
    how = {"mesh": mesh, "in_specs": [spec], "padding": -np.inf, "axis": axis}
    same(run(KERNELS["sort"], x, **how), np.sort(x, axis))
    same(run(KERNELS["argsort"], x, **how), np.argsort(x, axis, stable=True))


def test_sorts_of_every_type(run, values, same, dtype):
    x = values.small((7, 4), dtype)
    wide = x.astype(complex if dtype.kind == "c" else float)
    how = {"mesh": {"x": 3}, "axis": 0}
    expected = np.argsort(wide, 0, stable=True)
    same(run(KERNELS["argsort"], x, **how), expected)
    same(run(KERNELS["sort"], x, **how), np.take_along_axis(x, expected, 0))


@pytest.mark.parametrize(
    "name",
    [
        *("bfloat16", "float32", "complex128"),
        *(pytest.param(name, marks=pytest.mark.long) for name in ("float16", "float64", "complex64")),
    ],
)
def test_sorts_of_special_numbers(run, values, element_types, name):
    dtype = next(element_type for element_type in element_types if element_type.name == name)
    part = np.empty(0, dtype).real.dtype
    subnormals = values.subnormal((4,), part).astype(float)
    numbers = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, *subnormals]
    x = np.array([complex(a, b) for a in numbers for b in numbers] if dtype.kind == "c" else numbers * 4).astype(dtype)
    x = values.random.permutation(x)
    expected = np.argsort(x.astype(complex if dtype.kind == "c" else float), stable=True)
    np.testing.assert_array_equal(run(KERNELS["argsort"], x, mesh={"x": 3}), expected)
    assert run(KERNELS["sort"], x, mesh={"x": 3}).tobytes() == x[expected].tobytes()


@pytest.mark.parametrize(("layout", "axis"), pairs_of(LAYOUTS, [-1, 0]))
def test_sorts_by_several_keys_are_numpys(run, values, same, layout, axis):
    mesh, spec = layout
    x = np.round(values.normal(SHAPE))
    x[1, 2, 3:5], x[4, 0, :4] = np.nan, (np.inf, -np.inf, 0.0, -0.0)
    how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan, "axis": axis}
    same(run(KERNELS["lexsort"], x, **how), np.lexsort(x, axis))


def test_sorts_by_keys_of_every_type(run, values, same, dtype):
    x = values.small((3, 40), dtype)
    wide = x.astype(complex if dtype.kind == "c" else float)
    same(run(KERNELS["lexsort"], x, mesh={"x": 3}), np.lexsort(wide))


def test_every_bit_is_kept_on_one_device(run, values, dtype):
    x = values.small((13,), dtype)
    how = {"mesh": {"x": 3}, "strategy": "one_device"}
    assert run(KERNELS["sort"], x, **how).tobytes() == run(KERNELS["sort"], x).tobytes()
