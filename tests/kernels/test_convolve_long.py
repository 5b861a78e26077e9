"""The tests of `test_convolve.py` that take long."""

import itertools

import hypothesis.extra.numpy as hnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernels.test_convolve import CONVOLVE, LAYOUTS, TABLE, along, check

from shardcall_core.functions.stencils import CONVOLVE_MODES
from shardcall_server.kernels.stencils.convolve import MAX_UNROLLED

pytestmark = pytest.mark.long

COMPLETE = [*TABLE, *itertools.product(LAYOUTS, [(1, 1), (8, 1), (1, 9), (2, 2), (17, 40), (64, 33)], CONVOLVE_MODES)]


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@pytest.mark.parametrize(("layout", "sizes", "mode"), COMPLETE)
def test_the_complete_table_gives_numpys_result(run, values, same, layout, sizes, mode, strategy):
    run.programs.clear()  # no call comes twice
    check(run, values, same, layout, sizes, mode, strategy)


@pytest.mark.parametrize("shape", [(5,), (4, 3), (2, 9, 3)], ids=str)
@pytest.mark.parametrize("axis", [0, -1])
def test_every_rank_and_axis_is_numpys(run, values, same, shape, axis):
    x, v = (values.random.integers(-9, 9, s) for s in (shape, 4))
    same(run(CONVOLVE, x, v, mesh={"x": 8}, axis=axis), along(x, v, "full", axis))


@pytest.mark.parametrize("mesh", [pytest.param({"x": 1}, marks=pytest.mark.long), {"x": 8}], ids=str)
def test_every_element_type(run, values, same, dtype, mesh):
    x, v = values.small((20,), dtype), values.small((3,), dtype)
    same(run(CONVOLVE, x, v, mesh=mesh, mode="same"), np.convolve(x, v, "same"))


@pytest.mark.parametrize(
    "types", [("int8", "float32"), ("uint8", "int8"), ("bool", "int32"), ("float32", "complex64"), ("int4", "int8")]
)
def test_types_meet_as_numpys(run, values, same, types):
    x, v = (values.small((n,), np.dtype(getattr(ml_dtypes, t, None) or t)) for n, t in zip((20, 3), types, strict=True))
    dtype = np.result_type(x, v)
    same(run(CONVOLVE, x, v, mesh={"x": 8}), np.convolve(x.astype(dtype), v.astype(dtype)))


@pytest.mark.parametrize("length", [4, MAX_UNROLLED + 1])
def test_elements_outside_the_array_are_omitted_and_not_zero(run, same, length):
    x, v = np.ones(16), np.ones(length)
    v[2], x[5] = np.inf, -np.inf
    for mesh in ({"x": 1}, {"x": 8}):
        with np.errstate(invalid="ignore"):
            same(run(CONVOLVE, x, v, mesh=mesh), np.convolve(x, v))


@pytest.mark.parametrize(("count", "length"), [(70, MAX_UNROLLED), (70, 50), (20, 90)])
def test_long_windows_keep_the_stated_bound(run, values, count, length):
    x, v = values.normal((count,)), values.normal((length,))
    exact, size = (np.convolve(f(x.astype(np.float64)), f(v.astype(np.float64))) for f in (np.asarray, np.abs))
    error = np.abs(run(CONVOLVE, x, v, mesh={"x": 8}) - exact)
    assert (error <= length * np.finfo(np.float32).eps * size).all()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    x=hnp.arrays(np.int32, st.sampled_from([(8, 3), (13, 2)])),
    v=hnp.arrays(np.int32, st.sampled_from([1, 3])),
    layout=st.sampled_from(LAYOUTS),
)
def test_the_result_does_not_depend_on_the_mesh(run, same, x, v, layout):
    mesh, spec = layout
    same(run(CONVOLVE, x, v, mesh=mesh, in_specs=[spec], axis=0), run(CONVOLVE, x, v, axis=0))
