"""Derivatives of traced functions: values, structures, and what is refused."""

import re
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from rows import rows

import shardcall as sc

RANDOM = np.random.default_rng(8)
X, W, B = RANDOM.normal(size=(13, 5)), RANDOM.normal(size=(5, 7)), RANDOM.normal(size=7)


def loss(params, x):
    return np.mean(np.tanh(x @ params["w"] + params["b"]) ** 2)


def slopes(x):
    """The derivatives of `loss` with respect to w and b, by hand."""
    hidden = np.tanh(x @ W + B)
    back = 2 * hidden * (1 - hidden**2) / hidden.size
    return x.T @ back, back.sum(0)


@pytest.mark.parametrize("spec", [("x", None), None])
def test_a_value_and_its_gradient_have_the_structure_of_the_argument(client, spec):
    value, gradient = client.value_and_grad(loss)({"w": W, "b": B}, client.put(X, mesh={"x": 4}, spec=spec))
    assert abs(float(value) - loss({"w": W, "b": B}, X)) < 1e-14
    by_w, by_b = slopes(X)
    assert np.allclose(gradient["w"].get(), by_w, rtol=1e-12)
    assert np.allclose(gradient["b"].get(), by_b, rtol=1e-12)


def test_a_training_step_is_one_program(client):
    @client.jit
    def step(params, x, rate):
        value, gradient = client.value_and_grad(loss)(params, x)
        return value, {key: params[key] - rate * gradient[key] for key in params}

    params, values = {"w": W.astype("f4"), "b": B.astype("f4")}, []
    x = client.put(X.astype("f4"), mesh={"x": 4})
    for _ in range(5):
        value, params = step(params, x, 0.5)
        values.append(float(value))
    assert params["w"].dtype == np.float32
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == 5


def test_arguments_that_are_one_array_have_separate_gradients(client):
    u = client.put(np.arange(4.0))
    by_x, by_y = client.grad(lambda x, y: (x * x * y + u).sum(), argnums=(0, 1))(u, u)
    assert np.array_equal(by_x.get(), 2 * np.arange(4.0) ** 2)
    assert np.array_equal(by_y.get(), np.arange(4.0) ** 2)


LOOPS = {
    "scan": lambda xp, x: xp.scan(lambda c, r: (c * r, ()), 1.0, x)[0],
    "fori_loop": lambda xp, x: xp.fori_loop(0, 3, lambda i, s: np.sin(s) * x + s * i, x).sum(),
    "nested": lambda xp, x: xp.scan(lambda c, r: (xp.fori_loop(0, 2, lambda i, s: s * r + c, c), c), x[0], x)[1].sum(),
}


@rows("name", LOOPS)
def test_derivatives_of_derivatives_through_loops_are_differences_of_gradients(client, name):
    x, direction = np.array([1.0, 2, 4, 3, 5]), np.array([1.0, 0, 0.5, -2, 0])
    gradient = client.jit(client.grad(partial(LOOPS[name], client.xp)))
    step = 1e-5 * direction
    expected = (gradient(x + step).get() - gradient(x - step).get()) / 2e-5
    reverse = client.jit(client.grad(lambda x: (gradient(x) * direction).sum()))
    np.testing.assert_allclose(reverse(x).get(), expected, rtol=1e-6, atol=1e-6)
    forward = client.jit(lambda x: client.jvp(gradient, (x,), (direction,))[1])
    np.testing.assert_allclose(forward(x).get(), expected, rtol=1e-6, atol=1e-6)


def test_a_loss_without_the_argument_has_the_gradient_zero(client):
    value, gradient = client.value_and_grad(lambda u: client.xp.asarray(2.5) + 0)(np.ones(3))
    assert float(value) == 2.5
    assert np.array_equal(gradient.get(), np.zeros(3))


def test_derivatives_of_derivatives(client):
    inner = client.grad(lambda u: (u**3).sum())
    outer = client.jit(client.grad(lambda u: (inner(u) * np.arange(4.0)).sum()))
    assert np.allclose(outer(np.arange(1.0, 5)).get(), 6 * np.arange(1.0, 5) * np.arange(4.0))


def test_forward_derivatives(client):
    def f(u, v):
        return {"product": u * v, "largest": u.argmax()}

    u, v, along = np.arange(5.0), np.arange(5.0) + 2, np.full(5, 0.5)
    results, tangents = client.jvp(f, (u, v), (along, 2 * along))
    assert np.array_equal(results["product"].get(), u * v)
    assert int(results["largest"]) == 4
    assert np.array_equal(tangents["product"].get(), along * v + 2 * along * u)
    assert int(tangents["largest"]) == 0


def test_products_of_cotangents(client):
    results, product = client.vjp(lambda u, v: (u[:, 0] * v, v.sum()), client.put(X, mesh={"x": 4}), np.arange(13.0))
    assert np.array_equal(results[0].get(), X[:, 0] * np.arange(13.0))
    by_u, by_v = product((np.arange(13.0) + 1, np.float64(2)))
    expected = np.zeros_like(X)
    expected[:, 0] = np.arange(13.0) * (np.arange(13.0) + 1)
    assert np.array_equal(by_u.get(), expected)
    assert np.allclose(by_v.get(), X[:, 0] * (np.arange(13.0) + 1) + 2)


def test_a_variable_that_the_loss_refers_to_may_change(client):
    factor = np.ones(3)
    gradient = client.grad(lambda u: (u * factor).sum())
    assert np.array_equal(gradient(np.ones(3)).get(), np.ones(3))
    factor[1] = 5
    assert np.array_equal(gradient(np.ones(3)).get(), [1, 5, 1])


def test_equal_losses_are_one_program(client):
    u = sc.Array((13,), np.float64)
    one = client.value_and_grad(lambda u: (u * u).sum()).trace(u)
    assert one.key == client.value_and_grad(lambda v: [np.sin(v), (v * v).sum()][1]).trace(u).key
    assert client.grad(lambda u: (u * u).sum()).trace(u).key != one.key


REFUSED = [
    (lambda client, u: client.grad(lambda u: u * 2)(u), r"returns float64\[4\], and only a real .* mean"),
    (lambda client, u: client.grad(lambda u: (u * 1j).sum())(u), "only a real floating-point number"),
    (lambda client, u: client.grad(lambda u: (u.sum(), 1))(u), "does not return one number.*has_aux"),
    (lambda client, u: client.grad(lambda u: u.sum(), has_aux=True)(u), "does not return a pair"),
    (lambda client, u: client.grad(lambda u: u.sum())(u.astype(int)), "argument 0 of .* no derivatives"),
    (lambda client, u: client.grad(lambda u: u.sum(), argnums=(0, 1))(u), "argnums has 1"),
    *(
        (
            lambda client, u, argnums=argnums: client.grad(lambda u: u.sum(), argnums)(u),
            f"argnums is {re.escape(repr(argnums))}",
        )
        for argnums in ("x", (0, "x"), True, 1.5, (), (0, 0), (0, -1))
    ),
    (lambda client, u: client.grad(lambda u: np.nextafter(u, 1.0).sum())(u).get(), "nextafter at .* no derivative"),
    (lambda client, u: client.jvp(np.sin, (u,), (u[:2],)), r"tangent or cotangent .* float64\[2\]"),
    (lambda client, u: client.jvp(np.sin, (u,), (u, u)), "another structure"),
    (lambda client, u: client.vjp(np.sin, u)[1](u[:2]), r"tangent or cotangent .* float64\[2\]"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_has_no_derivative_is_refused_by_name(client, call, message):
    with pytest.raises(sc.ShardcallError, match=message):
        call(client, client.put(np.arange(4.0)))


@pytest.mark.parametrize(
    ("name", "f", "expected"),
    [
        ("hessian", lambda x: (x[:2] ** 2 * x[1]).sum(), [[2, 2, 0], [2, 6, 0], [0, 0, 0]]),
        ("jacobian", lambda x: x[:2] * x[2], [[1, 0, 1], [0, 1, 1]]),
    ],
)
def test_the_advice_for_a_name_of_jax_computes_what_it_is_for(client, name, f, expected):
    with pytest.raises(AttributeError) as raised:
        getattr(client, name)
    advice = str(raised.value).partition("; ")[2].partition(" is the ")[0]
    assert np.array_equal(eval(advice, {"client": client, "np": np, "f": f, "x": np.ones(3)}).get(), expected)


def test_cotangents_belong_to_the_arguments_that_the_results_were_computed_from(client):
    here, there = np.arange(3.0), client.put(np.arange(3.0))
    _, product = client.vjp(lambda x, y: x * x + y * y, here, there)
    here[1] = there[1] = 100
    for gradient in product(np.ones(3)):
        assert np.array_equal(gradient.get(), 2 * np.arange(3.0))


class Point(NamedTuple):
    x: Any
    y: Any


def test_several_arguments_and_other_results(client):
    def distance(p, q, scale, nothing):
        gap = p.x - q.x
        return scale * (gap**2).sum(), {"gap": gap, "count": np.int64(3)}

    p, q = Point(np.arange(4.0), np.ones(2)), Point(np.ones(4), None)
    (value, others), (by_p, by_q) = client.value_and_grad(distance, argnums=(0, 1), has_aux=True)(p, q, 2, None)
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


def masked_write(x):
    y = x.copy()
    m = y > 0
    y[m] = np.log(y[m])
    return y.sum()


def masked_twice(x):
    m = x[x > -2]
    m[m > 0] = np.log(m[m > 0])
    return m.sum()


ROOT = (lambda x: 0.5 * x**-0.5, lambda x: -0.25 * x**-1.5)
LOG = (lambda x: 1 / x, lambda x: -(x**-2))
INVERSE = (lambda x: -(x**-2), lambda x: 2 * x**-3)
MASKED = [
    (lambda x: np.sum(np.sqrt(x[x > 0])), *ROOT, 0),
    (lambda x: x.__array_namespace__().sqrt(x[x > 0]).sum(), *ROOT, 0),
    (lambda x: (x[x > 0] ** -1 * 1.0).sum(), *INVERSE, 0),
    (masked_write, *LOG, 1),
    (masked_twice, *LOG, 1),
    (lambda x: np.divide(1, x, where=x > 0, out=np.zeros(4)).sum(), *INVERSE, 0),
    (lambda x: x.at[x > 0].power(0.5).sum(), *ROOT, 1),
]
"""Functions, their first and second derivatives for positive numbers, and the first one for others."""


@rows("function, first, second, otherwise", MASKED)
def test_elements_that_a_mask_leaves_out_have_no_part_in_derivatives(client, function, first, second, otherwise):
    x = np.array([-1.0, 0, 4, 9])
    slopes, curves = np.append([otherwise] * 2, first(x[2:])), np.append([0, 0], second(x[2:]))
    gradient = client.grad(function)

    @client.jit
    def derivatives(x):
        tangents = client.jvp(gradient, (x,), (np.ones(4),))
        rows = client.vmap(gradient)(x[:, None] + np.zeros(4))  # of equal elements
        along = client.jvp(function, (x,), (np.ones(4),))[1]
        return (
            *tangents,
            client.grad(lambda x: gradient(x).sum())(x),
            rows[:, 0],
            client.vjp(function, x)[1](1.0)[0],
            along,
        )

    for actual, expected in zip(derivatives(x), (slopes, curves, curves, slopes, slopes, slopes.sum()), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-14)


def test_operands_beside_masked_elements_have_finite_derivatives(client):
    x = np.array([np.nan, 1, np.inf, 3, 0])
    for total in (
        lambda w, x: (np.sqrt(x[np.isfinite(x)]) * w).sum(),
        lambda w, x: np.multiply(np.sqrt(x), w, where=np.isfinite(x), out=np.zeros(5)).sum(),
    ):
        assert client.grad(total)(np.float64(2), x) == 1 + 3**0.5
    variance = client.grad(lambda x: np.var(x, where=np.isfinite(x)))(x)
    np.testing.assert_allclose(variance, np.array([0, -2, 0, 10, -8]) / 9, rtol=1e-14)
    for before in (lambda x: np.sum(np.sqrt(x), where=x > 0), lambda x: np.where(x > 0, np.sqrt(x), 0).sum()):
        np.testing.assert_array_equal(client.grad(before)(np.array([0, 1.0])), [np.nan, 0.5])  # as in JAX


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
        lambda: client.grad(client.checkpoint(repeated))(x, 3),
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
