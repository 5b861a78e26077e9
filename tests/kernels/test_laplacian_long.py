"""The tests of `test_laplacian.py` that take long."""

import itertools

import numpy as np
import pytest
from kernels.test_laplacian import AB, ABC, LAPLACIAN, MODES, X8, check, expected

from shardcall_core.call_error import Reason

pytestmark = pytest.mark.long

COMPLETE = [
    *itertools.product(
        [X8, AB, {"mesh": {"a": 2, "b": 4}, "in_specs": [(("b", "a"), None)]}], [(24, 9), (17, 6), (1, 3)], [None, 0, 1]
    ),
    *itertools.product([ABC], [(4, 6, 8), (9, 7, 5), (1, 2, 3)], [None, (0, 2)]),
]


@pytest.mark.parametrize("boundary", MODES)
def test_gspmd_says_the_same(run, values, same, boundary):
    check(run, same, values.normal((13, 7), np.float64), AB, None, boundary, "gspmd")


@pytest.mark.parametrize("strategy", ["halo", "gspmd"])
@pytest.mark.parametrize("boundary", MODES)
@pytest.mark.parametrize(("layout", "shape", "axes"), COMPLETE)
def test_the_complete_table_is_numpys(run, values, same, layout, shape, axes, boundary, strategy):
    run.programs.clear()
    check(run, same, values.normal(shape, np.float64), layout, axes, boundary, strategy)


def test_every_element_type_but_bool(run, values, same, refused, dtype):
    x = values.small((24, 3), dtype)
    if dtype == np.bool_:
        assert refused(LAPLACIAN, x).reason == Reason.UNSUPPORTED_ELEMENT_TYPE
        return
    wide = x.astype(np.complex128 if dtype.kind == "c" else np.float64)
    want = expected(wide, None, "periodic")
    if dtype.name.startswith(("int", "uint")):
        want = want.astype(np.int64).astype(dtype)
    same(run(LAPLACIAN, x, **X8), want.astype(dtype))


def test_steps_divide_every_axis(run, values):
    x = values.normal((16, 6))
    result = run(LAPLACIAN, x, np.float64(0.5), np.float64(3), boundary="edge", **AB)
    np.testing.assert_allclose(result, expected(x.astype(np.float64), None, "edge", (0.5, 3)), rtol=1e-5, atol=1e-5)
    result = run(LAPLACIAN, x.astype(np.int32), np.int64(2), **AB)
    np.testing.assert_allclose(result, expected(x.astype(np.int32), None, "periodic", (2, 2)), rtol=1e-12)
    assert result.dtype == np.float64
