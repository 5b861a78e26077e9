"""The rows of the table for Fourier transforms give NumPy's results in every layout."""

import numpy as np
import pytest
from pairs import pairs_of

from shardcall_core.call_error import Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.kernels.library import kernels

KERNELS = {kernel.name: kernel for kernel in kernels()}
LAYOUTS = [
    ({"x": 8}, ("x", None, None)),
    ({"x": 3}, (None, "x", None)),
    ({"a": 2, "b": 2}, ("b", None, "a")),
]
SHAPE = (5, 4, 9)
TRANSFORMS = ("fft", "ifft", "rfft", "irfft")


def close(actual, expected):
    """Checks shape and type, and that errors are within a few units of the largest value."""
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    eps = np.finfo(expected.dtype).eps
    np.testing.assert_allclose(actual, expected, rtol=0, atol=16 * eps * np.max(np.abs(expected), initial=0))


@pytest.mark.parametrize(("layout", "name"), pairs_of(LAYOUTS, TRANSFORMS))
def test_transforms_are_numpys(run, values, layout, name):
    mesh, spec = layout
    x = values.normal(SHAPE, np.float64)
    axes = (0, -1) if name in ("fft", "irfft") else (1,)
    for axis, n, norm in zip(axes, (None, 12), ("backward", "ortho"), strict=False):
        how = {"mesh": mesh, "in_specs": [spec], "padding": np.nan, "axis": axis, "norm": norm, "n": n}
        close(run(KERNELS[name], x, **how), getattr(np.fft, name)(x, n, axis, norm))


def test_transforms_of_nothing(run):
    x = np.zeros((0, 5))
    for name in TRANSFORMS:
        close(run(KERNELS[name], x, mesh={"x": 3}), getattr(np.fft, name)(x))


X, HALVES, COMPLEX = (ArrayType((5, 0), np.dtype(t)) for t in ("float32", "int8", "complex64"))


@pytest.mark.parametrize(
    ("name", "operand", "parameters", "field", "reason"),
    [
        ("fft", X, {"axis": 2}, "axis", "AXIS_OUT_OF_RANGE"),
        ("fft", X, {}, "n", "INVALID_PARAMETER"),
        ("ifft", X, {"axis": 0, "n": 0}, "n", "INVALID_PARAMETER"),
        ("ifft", X, {"axis": 0, "n": 2.0}, "n", "PARAMETER_TYPE"),
        ("irfft", ArrayType((1,), np.dtype("float32")), {}, "n", "INVALID_PARAMETER"),
        ("irfft", X, {"axis": 0, "norm": "none"}, "norm", "INVALID_PARAMETER"),
        ("rfft", COMPLEX, {"axis": 0}, "x", "UNSUPPORTED_ELEMENT_TYPE"),
    ],
)
def test_refusals_name_the_argument(refused, name, operand, parameters, field, reason):
    error = refused(KERNELS[name], operand, mesh={"x": 2}, **parameters)
    assert (error.field, error.reason) == (field, Reason[reason])


def test_types_that_numpy_does_not_transform_are_refused(refused, element_types):
    for dtype in element_types:
        if dtype.kind not in "biufc":
            error = refused(KERNELS["fft"], ArrayType((5,), dtype), mesh={"x": 2})
            assert error.reason == Reason.UNSUPPORTED_ELEMENT_TYPE


def test_the_strategy_follows_the_layout(run):
    x, row = ArrayType((16, 6), np.dtype("float32")), ArrayType((16,), np.dtype("float32"))
    how = {"mesh": {"x": 8}, "in_specs": [("x", None)]}
    assert run.resolve(KERNELS["fft"], x, **how).strategy.name == "blocks"
    assert "all-" not in run.program(KERNELS["fft"], x, **how).text
    assert run.resolve(KERNELS["fft"], x, **how, axis=0).strategy.name == "all_to_all"
    text = run.program(KERNELS["fft"], x, **how, axis=0).text
    assert "all-to-all" in text
    assert "all-gather" not in text
    assert run.resolve(KERNELS["fft"], row, mesh={"x": 8}).strategy.name == "one_device"
