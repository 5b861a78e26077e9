"""Traced functions that are computed for every index of an axis at once: results are those of a loop over rows."""

import numpy as np
import pytest

import shardcall as sc

RANDOM = np.random.default_rng(11)
X, Y = RANDOM.normal(size=(13, 5)), RANDOM.normal(size=13)


def test_axes_are_those_of_trees_and_of_results(client):
    def f(pair, scale, *, offset):
        u, (v,) = pair
        return {"sum": u * scale + v, "last": offset - u[-1], "scale": scale * 2}

    v, offset = RANDOM.normal(size=5), RANDOM.normal(size=13)
    result = client.vmap(f, in_axes=([-2, None], None), out_axes={"sum": -1, "last": 0, "scale": 1})(
        [client.put(X, mesh={"x": 4}), (v,)], np.ones(2).sum() * np.ones(5), offset=offset
    )
    assert np.array_equal(result["sum"].get(), np.stack([row * 2 + v for row in X], -1))
    assert np.array_equal(result["last"].get(), offset - X[:, -1])
    assert np.array_equal(result["scale"].get(), np.full((5, 13), 4.0))  # which is not mapped


def test_functions_of_two_axes(client):
    distances = client.vmap(client.vmap(lambda a, b: ((a - b) ** 2).sum(), (None, 0)), (0, None))
    expected = ((X[:, None] - X[None, :3]) ** 2).sum(-1)
    assert np.allclose(client.jit(distances)(client.put(X, mesh={"x": 4}), X[:3]).get(), expected, rtol=1e-14)


def test_loops_and_branches_are_per_index(client):
    def steps(x, limit):
        return client.xp.while_loop(lambda x: x < limit, lambda x: x * 2, x)

    def chosen(x, y):
        return client.xp.cond(y > 0, lambda x: x * 2, lambda x: -x, x)

    def scanned(x):
        return client.xp.scan(lambda total, row: (total + row, total), 0.0, x)

    starts = np.arange(1.0, 8)
    doubled = client.vmap(steps, (0, None))(starts, 50)
    assert np.array_equal(doubled.get(), [s * 2 ** np.ceil(np.log2(50 / s)) for s in starts])
    assert np.array_equal(client.vmap(chosen)(X, Y).get(), np.where(Y[:, None] > 0, X * 2, -X))
    last, sums = client.vmap(scanned, out_axes=(0, 1))(X)
    assert np.allclose(last.get(), X.sum(1), rtol=1e-13)
    assert np.allclose(sums.get(), (np.cumsum(X, 1) - X).T, atol=1e-13)


def test_an_axis_may_be_empty(client):
    assert client.vmap(np.sin)(np.zeros((0, 3))).get().shape == (0, 3)
    assert client.vmap(lambda u: u.max())(np.zeros((2, 3))[:1]).get().tolist() == [0]


def test_a_check_of_values_refuses_the_call(client):
    take = client.vmap(client.xp.take)
    assert np.array_equal(take(X, np.arange(13) % 5).get(), X[np.arange(13), np.arange(13) % 5])
    with pytest.raises(sc.IndexOutOfRangeError):
        take(X, np.arange(13)).get()


def test_static_arguments_are_not_mapped(client):
    power = client.jit(lambda u, n: u**n + (n if n > 2 else 0), static="n")
    np.testing.assert_allclose(client.vmap(power)(X, 3).get(), X * X * X + 3, rtol=1e-14, atol=1e-14)


def test_the_mapped_axis_of_a_plan_is_not_sharded(client):
    x = client.put(X, mesh={"x": 4}, spec=("x", None))
    assert client.vmap(lambda u: u * 2).plan(x).results[0].spec == sc.P(None, "x")


def test_equal_functions_are_one_program(client):
    u = sc.Array((13, 5), np.float64)
    one = client.vmap(lambda u: u * u).trace(u)
    assert client.vmap(lambda v: [np.sin(v), v * v][1]).trace(u).key == one.key
    assert client.vmap(lambda u: u * u, 1).trace(u).key != one.key


REFUSED = [
    (lambda client: client.vmap(np.add)(X, Y[:3]), r"different lengths, 13: axis 0 of .* float64\[13, ?5\]; 3: axis 0"),
    (lambda client: client.vmap(np.sin, 2)(X), r"along axis 2, and it is float64\[13, ?5\], of 2 axes"),
    (lambda client: client.vmap(np.sin)(2.0), r"along axis 0, and it is float64\[\], of 0 axes"),
    (lambda client: client.vmap(np.sin, None)(X), "maps no array"),
    (lambda client: client.vmap(np.add, (0,))(X, X), "has 1 items and the call 2 arguments"),
    (lambda client: client.vmap(np.sin, "x"), "in_axes of vmap has 'x'"),
    (lambda client: client.vmap(lambda d: d["a"], ({"b": 0},))({"a": X}), "in_axes of .* another structure than d"),
    (lambda client: client.vmap(np.sin, out_axes=2)(X), r"out_axes of .* has 2 for result, .* from -2 to 1"),
    (lambda client: client.vmap(np.sin, out_axes=None)(X), "out_axes of .* has None for result"),
    (lambda client: client.vmap(lambda u: None)(X), "returns no array"),
    (lambda client: client.vmap(lambda u: u.sum() if u[0] > 0 else u)(X), r"xp\.cond"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_cannot_be_mapped_is_refused_by_name(client, call, message):
    with pytest.raises(sc.ShardcallError, match=message):
        call(client)


def test_arrays_from_outside_do_not_change(client):
    def f(u):
        total = u * 2

        def body(row):
            total[0] = row.sum()
            return row

        return client.vmap(body)(u), total

    with pytest.raises(sc.TracingError, match=r"from outside of it.*begin with a copy\(\)"):
        client.jit(f)(X)


def test_seeds_may_be_mapped(client):
    drawn = client.vmap(lambda seed: client.xp.normal(seed, 5))(np.arange(3))
    assert np.array_equal(drawn.get(), np.stack([client.normal(seed, 5).array for seed in range(3)]))
