"""The tests of `test_traced_derivatives.py` that take long."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from end_to_end.test_traced_derivatives import RANDOM

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


class Point(NamedTuple):
    x: Any
    y: Any


def test_several_arguments_and_other_results(client):
    def distance(p, q, scale, nothing):
        gap = p.x - q.x
        return scale * (gap**2).sum(), {"gap": gap, "count": np.int64(3)}

    p, q = Point(np.arange(4.0), np.ones(2)), Point(np.ones(4), None)
    result = client.value_and_grad(distance, argnums=(0, 1), has_aux=True)(p, q, 2, None)
    (value, others), (by_p, by_q) = result
    assert float(value) == 2 * ((p.x - 1) ** 2).sum()
    assert np.array_equal(others["gap"].get(), p.x - 1)
    assert int(others["count"]) == 3
    assert np.array_equal(by_p.x.get(), 4 * (p.x - 1))
    assert np.array_equal(by_p.y.get(), np.zeros(2))  # on which the loss does not depend
    assert np.array_equal(by_q.x.get(), -4 * (p.x - 1))
    gradient, _ = client.grad(distance, argnums=-3, has_aux=True)(p, q, 2, None)
    assert np.array_equal(gradient.x.get(), by_q.x.get())


def test_powers_of_zero_and_of_negative_numbers(client):
    x = np.array([0.0, -2.0, 3.0])
    polynomial = client.grad(lambda a: sum((a**k).sum() for k in range(4)))
    np.testing.assert_allclose(polynomial(x), 1 + 2 * x + 3 * x**2)
    np.testing.assert_allclose(client.grad(lambda a: polynomial(a).sum())(x), 2 + 6 * x)
    np.testing.assert_allclose(client.jvp(lambda a: a**3, (x,), (np.ones(3),))[1], 3 * x**2)
    np.testing.assert_allclose(client.grad(lambda a: (a ** np.array([0, 1, -2])).sum())(x), [0, 1, -2 / 27])
    np.testing.assert_allclose(client.grad(lambda y: (np.array([0.0, 2.0]) ** y).sum())(abs(x[1:])), [0, 8 * np.log(2)])


def test_checkpoints_have_the_same_results(client):
    block = client.checkpoint(lambda u, n: np.sin(np.sin(u)) * n)
    u = RANDOM.normal(size=9)
    assert np.allclose(block(u, 2).get(), 2 * np.sin(np.sin(u)), rtol=1e-14)
    gradient = client.grad(lambda u: block(block(u, 2), 1).sum())(u)
    h = 2 * np.sin(np.sin(u))
    expected = np.cos(np.sin(h)) * np.cos(h) * 2 * np.cos(np.sin(u)) * np.cos(u)
    assert np.allclose(gradient.get(), expected, rtol=1e-12)


def test_loops_without_derivatives_are_refused_while_traced(client):
    xp, x = client.xp, np.float64(3.0)

    def halved(x):
        return xp.while_loop(lambda x: x > 1, lambda x: x / 2, x)

    def repeated(x, n):
        return xp.fori_loop(0, n, lambda _, x: x * 2, x)

    def in_a_branch(x):
        return xp.cond(x > 1, halved, lambda x: x, x)

    def in_a_loop(x):
        return client.vmap(lambda x: xp.fori_loop(0, 2, lambda _, x: halved(x), x) * x)(x[None]).sum()

    message = r"(halved|repeated|in_a_.*) .* loop at .*test_traced_derivatives.py:\d+: .* such as a while_loop; give"
    for call in (
        lambda: client.grad(halved)(x),
        lambda: client.grad(repeated)(x, 3),
        lambda: client.jvp(halved, (x,), (x,)),
        lambda: client.vjp(halved, x)[1](x),
        lambda: client.grad(in_a_branch)(x),
        lambda: client.grad(in_a_loop)(x),
    ):
        with pytest.raises(sc.TracingError, match=message):
            call()
    assert client.grad(lambda x: [halved(x * 2), x * 3][1])(x) == 3
    assert client.grad(lambda x, y: x * halved(y))(x, np.float64(4.0)) == 1
    assert client.grad(lambda x, y: x * in_a_branch(y))(x, np.float64(4.0)) == 1
    assert client.grad(lambda x: x * xp.cond(x > 1, lambda n: n // 2, lambda n: n, x.astype(int)))(x) == 1
