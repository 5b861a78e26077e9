"""Results that go to arrays on the mesh of other types, and layouts of arrays that are changed."""

import copy

import numpy as np
import pytest
from end_to_end.numpy_calls import ARRAYS, MASK, MESH, X, calls_of, check_call

import shardcall as sc

pytestmark = pytest.mark.long


OUTPUTS = """
    np.sum({x|put(X.astype('f4'))}, 0, out=(t := put(np.zeros(6))))
    np.sum(put(X * 7), 0, out=(t := put(np.zeros(6, int))))
    x.max(0, t := put(np.zeros(6)))
    np.cumsum(y, 0, out=x)
    np.clip(x, 0, 1, out=x)
    np.take(x, [0, 2], 0, out=(t := put(X[:2])))
    np.concatenate([x, x], out=(t := put(np.zeros((26, 6)))))
    np.matmul(x.T, x, out=(t := put(np.zeros((6, 6)))))
    np.dot(x.T, x, out=(t := put(np.zeros((6, 6)))))
    np.add.reduce(x, out=(t := put(np.zeros(6))))
    np.maximum.accumulate(y, out=x)
    np.multiply.outer(x[0], x[0], out=(t := put(np.zeros((6, 6)))))
    np.median(x, 0, out=(t := put(np.zeros(6))))
    np.prod(factors, out=(t := put(np.zeros(()))))
    np.sum(put(np.full(4, 2**62)), out=(t := put(np.zeros(()))))
    np.sum(mask[0], out=(t := put(np.zeros((), 'i1'))))
    np.{cumprod|cumulative_prod}(factors, out=(t := put(np.zeros(30))))
    np.nanprod(factors, out=(t := put(np.zeros((), 'f4'))))
    np.cumulative_sum(v, out=(t := put(np.zeros(13, 'i1'))))
    np.trace(put(np.full((2, 2), 2**62)), out=(t := put(np.zeros(()))))
    np.add.reduce(put(np.array([2048, 1], 'f2')), out=(t := put(np.zeros((), 'f4'))))
    np.add.accumulate(put(V.astype('f4')), out=(t := put(np.zeros(13))))
    np.subtract.reduce(put(np.array([200, 100, 7], 'u1')), out=(t := put(np.zeros((), 'i8'))))
    np.subtract.accumulate(put(np.array([200, 100, 7], 'u1')), out=(t := put(np.zeros(3, 'i8'))))
    np.left_shift.reduce(put(np.array([1, 10], 'u1')), out=(t := put(np.zeros((), 'i8'))))
    np.power.reduce(put(np.array([10, 30])), out=(t := put(np.zeros(()))))
    np.multiply.reduceat(factors, [0, 25], out=(t := put(np.zeros(2))))
    np.logical_and.reduce(factors, out=(t := put(np.zeros((), 'i8'))))
    np.take(put(np.arange(3)), [0, 2], out=(t := put(np.zeros(2))))
    np.take(put(np.arange(3.0)), [0, 2], out=(t := put(np.zeros(2, '{f4|i8}'))), mode='{raise|clip}')
    np.compress([True, False, True], put(np.arange(3)), out=(t := put(np.zeros(2, '{f8|i4}'))))
    np.choose([0, 1], [v[:2], v[1:3]], out=(t := put(np.zeros(2, '{f4|i8}'))))
    """


@pytest.mark.parametrize("call", calls_of(OUTPUTS))
def test_an_array_is_changed_as_numpys(strict_client, call):
    check_call(strict_client, call)


@pytest.mark.parametrize(
    "call", ["x.put(AT[1:4], [1, 2, 3])", "x.fill(5)", "x.partition(range(13), 0)", "np.copyto(x, Y)"]
)
@pytest.mark.parametrize("spec", [sc.P("a", "b"), sc.P(None, "a")], ids=str)
def test_an_array_keeps_its_layout_and_a_copy_its_values(strict_client, call, spec):
    h, x = strict_client.put(X, mesh=MESH, spec=spec), X.copy()
    before = copy.copy(h)
    for array in (h, x):
        eval(call, {**ARRAYS, "np": np, "x": array})
    assert h.spec == spec
    np.testing.assert_array_equal(h.get(), x)
    np.testing.assert_array_equal(before.get(), X)


def test_targets_of_this_process_have_the_type_of_the_computation(client):
    """As targets on the mesh, in the table above."""
    factors = np.arange(1, 31)
    for function, x, dtype in (
        (np.prod, factors, "f8"),
        (np.add.accumulate, X[0].astype("f4"), "f8"),
        (np.nanprod, factors, "f4"),
    ):
        ours, numpys = (np.zeros(function(x).shape, dtype) for _ in range(2))
        assert function(client.put(x, mesh=MESH, spec=sc.P("a")), out=ours) is ours
        np.testing.assert_allclose(ours, function(x, out=numpys), rtol=1e-6)


def test_a_traced_function_changes_its_arrays(client):
    def changed(x, mask):
        y = x.copy()
        np.copyto(y, 2, where=mask)
        np.put(y, [0, 9], [1, 2])
        np.place(y, mask, [3, 4, 5])
        np.fill_diagonal(y, 7)
        np.add.at(y, (0, [0, 0]), 1)
        np.multiply(y, 2, out=y, where=y > 5)
        z = x.copy()
        z.fill(3)
        z.put([1], [4])
        z.partition(range(6))
        return y + z

    h, mask = (client.put(x, mesh=MESH, spec=sc.P("a", "b")) for x in (X, MASK))
    np.testing.assert_allclose(client.jit(changed)(h, mask).get(), changed(X, MASK))
