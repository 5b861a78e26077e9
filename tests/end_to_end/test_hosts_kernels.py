"""A handful of every family of kernels on meshes of several hosts; `make test-hosts` runs all of their tests there."""

import ml_dtypes
import numpy as np
import pytest

import shardcall as sc
from shardcall import P

ROW = sc.Mesh(x=8)
GRID = sc.Mesh(a=4, b=2)
# Of 8 devices: two processes have two of these each, four have one each.
SOME = sc.Mesh({"x": 4}, device_ids=[0, 2, 4, 6])


on_one = pytest.mark.parametrize("hosts", ["2x4"], indirect=True, scope="module")


def integers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(float)


X = integers(0, 83, 45)


@on_one
def test_differences(hosts):
    np.testing.assert_array_equal(hosts.diff(X, n=2, axis=0, prepend=1.0, mesh=ROW).array, np.diff(X, 2, 0, prepend=1))
    np.testing.assert_array_equal(hosts.shift(X, 11, axis=0, mode="periodic", mesh=SOME).array, np.roll(X, 11, 0))


@on_one
def test_elementwise_reductions_and_layouts(hosts):
    narrow = X.astype(ml_dtypes.bfloat16)
    result = hosts.add(narrow, narrow[0], mesh=GRID, spec=P("b", "a")).array
    np.testing.assert_array_equal(result, narrow + narrow[0], strict=True)
    np.testing.assert_array_equal(hosts.sum(X, axis=0, mesh=GRID, spec=P("a", "b")).array, X.sum(0))
    np.testing.assert_array_equal(hosts.argmax(X, mesh=ROW).array, X.argmax())
    bits = X.astype(ml_dtypes.int4)
    moved = hosts.transpose(bits, mesh=GRID, spec=P("a", "b"), out_spec=P("a", None)).array
    np.testing.assert_array_equal(moved, bits.T, strict=True)


@on_one
def test_einsum_and_gradient(hosts):
    np.testing.assert_array_equal(hosts.einsum("ij,ik->kj", X, X, mesh=SOME).array, np.einsum("ij,ik->kj", X, X))
    for result, expected in zip(hosts.gradient(X, mesh=GRID, spec=P("a", "b")), np.gradient(X), strict=True):
        np.testing.assert_allclose(result, expected)
