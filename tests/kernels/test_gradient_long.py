"""The tests of `test_gradient.py` that take long."""

import itertools

import numpy as np
import pytest
from kernels.test_gradient import GRADIENT, SHAPES, SPACINGS, X8, check, spacing
from pairs import pairs_of

from shardcall_core.call_error import Reason

pytestmark = pytest.mark.long

AB = {"mesh": {"a": 4, "b": 2}, "in_specs": [("a", "b")]}


LAYOUTS = [X8, AB, {"mesh": {"x": 1}, "in_specs": [("x", None)]}, {"mesh": {"x": 8}, "in_specs": [(None, "x")]}]


@pytest.mark.parametrize(("strategy", "axis"), pairs_of(["halo", "gspmd"], [None, (-1, 0)]))
def test_several_axes_give_several_results(run, values, axis, strategy):
    steps = (np.float64(0.5), np.arange(13 if axis else 7) ** 2.0)
    check(run, values.normal((13, 7), np.float64), steps, axis, 2, strategy=strategy, **AB)


@pytest.mark.parametrize(
    ("layout", "shape", "form", "edge_order", "strategy"),
    [*itertools.product(LAYOUTS, [*SHAPES, (3, 3)], SPACINGS, [1, 2], ["halo", "gspmd"])],
)
def test_the_complete_table_gives_numpys_result(run, values, layout, shape, form, edge_order, strategy):
    run.programs.clear()
    steps = spacing(values, form, shape, (0, 1))
    check(run, values.normal(shape, np.float64), steps, None, edge_order, strategy=strategy, **layout)


@pytest.mark.parametrize(
    ("edge_order", "coordinates"), pairs_of([1, 2], [np.arange(13.0), np.arange(13)[::-1], np.arange(13) ** 2]), ids=str
)
@pytest.mark.parametrize("strategy", ["halo", pytest.param("gspmd", marks=pytest.mark.long)])
def test_infinity_does_not_affect_its_row_where_steps_are_even(run, values, coordinates, edge_order, strategy):
    x = values.small((13,), np.dtype(np.float64))
    x[[0, 5]] = np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = np.gradient(x, coordinates, edge_order=edge_order)
    result = run(GRADIENT, x, coordinates, edge_order=edge_order, strategy=strategy, mesh={"x": 4}, in_specs=[("x",)])
    np.testing.assert_allclose(result, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
def test_differences_of_one_step_are_exact(run, values, same, strategy):
    x = values.normal((61, 3), np.float64)
    result = run(GRADIENT, x, np.float64(0.3), axis=0, strategy=strategy, **X8)
    same(result, np.gradient(x, 0.3, axis=0))


def test_every_element_type_but_bool(run, values, refused, dtype):
    x = values.small((24, 3), dtype)
    if dtype == np.bool_:
        assert refused(GRADIENT, x).reason == Reason.UNSUPPORTED_ELEMENT_TYPE
        return
    result = run(GRADIENT, x, axis=0, edge_order=2, **X8)
    wide = np.gradient(x.astype(np.complex128 if dtype.kind == "c" else np.float64), axis=0, edge_order=2)
    stays = dtype.kind in "fc" or "float" in dtype.name
    assert result.dtype == (dtype if stays else np.float64)
    np.testing.assert_array_equal(result, wide.astype(result.dtype))  # small numbers and halves are exact
    if dtype.isbuiltin == 1:
        assert result.dtype == np.gradient(x, axis=0).dtype


def test_spacings_of_other_types(run, values):
    x = values.normal((16, 3))
    for step in (np.int64(2), np.float32(0.5), np.arange(16, dtype=np.uint8), np.arange(16, 0, -1)):
        check(run, x, (step,), 0, 2, rtol=1e-5, **X8)
