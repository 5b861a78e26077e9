"""The tests of `test_linalg.py` that take long."""

import numpy as np
import pytest
from kernels import test_linalg as short
from kernels.conftest import with_cases
from kernels.test_linalg import FUNCTIONS, KERNELS, LAYOUTS, TRANSFORMS, close, matrices, near, positive, transforms

from shardcall_core.call_error import CallError

pytestmark = pytest.mark.long


def called(run, name, x, **how):
    """A call, and its name and matrix; the matrix is made positive definite where it must be."""
    x = positive(x) if name in ("cholesky", "eigh", "eigvalsh") else x
    return run.call(KERNELS[name], x, **how), (name, x)


def assert_numpys(results, called_with):
    """Compares results with NumPy's, and the products of factors with the matrix."""
    name, x = called_with
    if name == "eigh":
        values, vectors = results
        unit = np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape)
        close(values, np.linalg.eigvalsh(x))
        close(vectors * values[..., None, :], x @ vectors)
        close(np.conj(np.swapaxes(vectors, -1, -2)) @ vectors, unit)
    elif name == "svd":
        u, s, v = results
        close(s, np.linalg.svd(x).S)
        assert [result.shape for result in results] == [result.shape for result in np.linalg.svd(x)]
        count = s.shape[-1]
        close((u[..., :count] * s[..., None, :]) @ v[..., :count, :], x)
    elif name == "qr":
        q, r = results
        assert [result.shape for result in results] == [result.shape for result in np.linalg.qr(x)]
        close(q @ r, x)
        assert not np.tril(r, -1).any()
    elif name == "eig":
        computed, vectors = results
        close(np.sort_complex(computed.round(4)), np.sort_complex(np.linalg.eigvals(x).astype(computed.dtype).round(4)))
        close(vectors * computed[..., None, :], x @ vectors)
        close(np.linalg.norm(vectors, axis=-2), np.ones((5, 6), x.real.dtype))
    elif name == "eigvals":
        close(np.sort_complex(results.round(4)), np.sort_complex(np.linalg.eigvals(x).astype(results.dtype).round(4)))
    elif name == "slogdet":
        for ours, expected in zip(results, np.linalg.slogdet(x), strict=True):
            close(ours, expected)
    else:
        close(results, getattr(np.linalg, name)(x))


@pytest.mark.parametrize(("mesh", "spec"), LAYOUTS)
@pytest.mark.parametrize("dtype_", ["float32", "float64", "complex64", "complex128"])
def test_functions_of_matrices_are_numpys_in_every_layout(run, values, mesh, spec, dtype_):
    x, how = matrices(values, (5, 6, 6), dtype_), {"mesh": mesh, "in_specs": [spec]}
    run.check_together([called(run, name, x, **how) for name in FUNCTIONS], assert_numpys, np.nan)
    if dtype_ in ("float32", "complex128"):
        run.check_together([called(run, name, x, **how) for name in ("eig", "eigvals")], assert_numpys, np.nan)


def test_matrices_that_are_large_or_none_or_not_square(run, values):
    cases = [
        called(run, name, matrices(values, shape, "float64"), mesh={"x": 3})
        for shape in ((7, 4), (4, 7))
        for name in ("svd", "svdvals", "qr")
    ]
    large = matrices(values, (96, 96), "float64") + 20 * np.eye(96)
    for name in FUNCTIONS:
        cases += [
            (run.call(KERNELS[name], x, mesh={"x": 3}), (name, x)) for x in (np.zeros((0, 3, 3)), np.zeros((2, 0, 0)))
        ]
        if name != "det":  # each factor of it rounds
            cases.append(called(run, name, large, mesh={"x": 3}))
    run.check_together(cases, assert_numpys)


test_solutions_are_numpys = with_cases(short.test_solutions_are_numpys, {"layout": LAYOUTS})


def test_solutions_of_broadcast_batches(run, values):
    x, b = matrices(values, (1, 6, 6), "complex64"), values.normal((4, 5, 6, 2), np.float32)
    close(run(KERNELS["solve"], x, b, mesh={"x": 3}), np.linalg.solve(x, b))


SINGULAR = np.stack([np.eye(3), np.ones((3, 3)), np.eye(3)])


@pytest.mark.parametrize(
    ("name", "x", "says"),
    [
        ("inv", SINGULAR, "singular"),
        ("cholesky", -SINGULAR, "positive definite"),
        ("eigh", SINGULAR * np.nan, "do not converge"),
        ("svdvals", SINGULAR * np.nan, "do not converge"),
    ],
)
@pytest.mark.parametrize("spec", [("x", None, None), (None, None, "x")])
def test_matrices_without_a_result_are_refused(run, name, x, says, spec):
    with pytest.raises(CallError, match=says) as raised:
        run(KERNELS[name], x, mesh={"x": 2}, in_specs=[spec])
    assert raised.value.field == "x"


def test_equations_without_a_solution_are_refused(run):
    with pytest.raises(CallError, match="singular"):
        run(KERNELS["solve"], SINGULAR, np.ones(3), mesh={"x": 2})


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_every_transform(run, values, layout, axis):
    x = values.normal((5, 4, 9))
    hows = [{"axis": axis, "n": n, "norm": norm} for n in (None, 1, 3, 16) for norm in ("backward", "ortho", "forward")]
    run.check_together(transforms(run, x, layout, hows), near, np.nan)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_every_type(run, values, name):
    cases = []
    for dtype in ("bool", "uint8", "int64", "float16", "float32", "float64", "complex64", "complex128"):
        x = values.small((4099,), np.dtype(dtype))
        if name == "rfft" and dtype.startswith("complex"):
            continue
        wide = x.astype(np.float32) if dtype == "float16" else x  # NumPy scales by a number of the narrow type
        expected = getattr(np.fft, name)(wide).astype(getattr(np.fft, name)(x).dtype)
        cases.append((run.call(KERNELS[name], x, mesh={"x": 3}), expected))
    run.check_together(cases, near)
