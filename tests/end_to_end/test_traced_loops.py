"""Loops and branches of traced functions, and loops that run in slices beside other clients."""

import numpy as np
import pytest
from end_to_end.processes import is_busy, wait_for

import shardcall as sc

U = np.random.default_rng(5).normal(size=(13, 9))
ROWS = {"mesh": {"x": 4}, "spec": ("x", None)}


@pytest.fixture(scope="module")
def u(client):
    return client.put(U, **ROWS)


def test_loops_between_bounds_that_are_arguments(client, u):
    @client.jit
    def f(u, lower, upper):
        before = u * 2
        first = {"u": before, "n": 0}
        state = client.xp.fori_loop(lower, upper, lambda i, s: {"u": s["u"] + i * before, "n": s["n"] + 1}, first)
        return state["u"] - before, state["n"], u

    for lower, upper in ((2, 5), (5, 2), (np.array(2), client.put(np.int64(5), mesh={"x": 4}))):
        total, count, same = f(u, lower, upper)
        numbers = range(int(lower), int(np.asarray(upper) if isinstance(upper, int) else upper))
        assert np.allclose(total.get(), sum(numbers) * 2 * U)
        assert int(count) == len(numbers)
        assert np.array_equal(same.get(), U)
        assert total.spec == u.spec
    before, loop, behind = f.plan(u, 2, 5)
    assert [len(plan.results) for plan in (before, loop, behind)] == [2, 3, 1]


def test_the_state_of_a_loop_keeps_its_types(client, u):
    xp = client.xp
    for body, message in (
        (lambda i, s: {"a": s["a"] * 2, "b": [s["b"][0].sum()]}, r"float64.* for carry\['b'\]\[0\], which is"),
        (lambda i, s: {"a": s["a"]}, "another structure"),
    ):
        with pytest.raises(sc.TracingError, match=message):
            xp.fori_loop(0, 3, body, {"a": np.float32(1), "b": [u]})
    assert xp.fori_loop(0, 3, lambda i, s: 1, np.float32(0)).dtype == np.float32  # as of NumPy, numbers take the type
    with pytest.raises(sc.TracingError, match="carries no array"):
        xp.fori_loop(0, 3, lambda i, s: s, ())
    with pytest.raises(sc.InvalidParameterError, match=r"upper of fori_loop is 2\.5"):
        xp.fori_loop(0, 2.5, lambda i, s: s, u)
    with pytest.raises(sc.InvalidParameterError, match="length=3 of scan, and xs has 13 rows"):
        xp.scan(lambda c, x: (c, x), 0.0, u, length=3)
    with pytest.raises(sc.TracingError, match="changes an array from outside"):
        client.jit(lambda u: xp.fori_loop(0, 2, lambda i, s: _assigned(v, s), v := u.copy()))(u)


def test_a_body_may_change_what_is_carried(client, u):
    def body(i, s):
        s *= 2
        return _assigned(s, s)

    expected = np.asarray(u.get()) * 4
    expected[0] = 1
    assert np.array_equal(client.xp.fori_loop(0, 2, body, u).get(), expected)
    assert np.array_equal(u.get(), U)


def _assigned(array, result):
    array[0] = 1
    return result


def endless(client, *, between=False):
    """The result of a loop without end, or of what is computed from its result."""
    f = client.jit(lambda u, n: client.xp.fori_loop(0, n, lambda i, s: s + u, u * 2) + 1)
    result = f(np.zeros(4), 2**62) if between else client.xp.fori_loop(0, 2**62, lambda i, s: s + 1, np.zeros(4))
    wait_for(lambda: is_busy(client))
    return result


@pytest.mark.parametrize("between", [False, True])
def test_a_loop_stops_when_its_results_are_dropped(client, between):
    result = endless(client, between=between)
    del result
    wait_for(lambda: not is_busy(client))
    client.synchronize()  # raises nothing


def test_a_loop_stops_when_its_results_are_deleted(client):
    client.delete(endless(client, between=True))
    wait_for(lambda: not is_busy(client))
    result, others = endless(client), []
    others.append(client.jit(lambda u: u + 1)(result))
    del result
    assert is_busy(client)  # another call waits for it
    others.clear()
    wait_for(lambda: not is_busy(client))


def test_the_end_of_a_with_block_stops_loops(client, server):
    with sc.connect(server.address) as other:
        result = endless(other)
        last = result + 1
    wait_for(lambda: not is_busy(client))
    with pytest.raises(sc.ArrayLostError):
        last.get()


def test_short_loops_are_parts_of_the_program(client, u):
    f = client.jit(lambda u: client.xp.fori_loop(0, 3, lambda i, s: s + u * i.astype("f8"), u) * 2)
    assert np.allclose(f(u).get(), 8 * U)
    assert len(f.trace(u).stages) == 1
    many = client.jit(lambda u: client.xp.fori_loop(0, 1025, lambda i, s: s + 1, u) * 2)
    assert len(many.trace(u).stages) == 2
    assert np.allclose(many(u).get(), (U + 1025) * 2)


def test_loops_outside_of_traced_functions(client, u):
    xp = client.xp
    assert np.allclose(xp.fori_loop(1, 4, lambda i, s: s * i, u).get(), U * 6)
    assert xp.while_loop(lambda n: n < 100, lambda n: n * 3, 2).get() == 162
    last, sums = xp.scan(lambda c, x: (c + x, {"sum": c + x}), np.zeros(9), u)
    assert np.allclose(sums["sum"].get(), np.cumsum(U, axis=0))
    assert np.allclose(last.get(), U.sum(axis=0))
    assert xp.cond(u.sum() > 1e9, lambda a: a, lambda a: -a, u).get().tolist() == (-U).tolist()


def test_the_usage_has_the_progress_of_loops(client, server):
    def progress(handle):
        return next((loop for loop in client.usage().loops if loop.request_id == handle), None)

    with sc.connect(server.address) as other:
        bounded = other.xp.fori_loop(0, 10**12, lambda i, s: s + 1, np.zeros(4))
        wait_for(lambda: progress(bounded.handle))
        first = progress(bounded.handle)
        assert first.iterations > 0
        assert first.iterations + first.iterations_left == 10**12
        assert " of 1,000,000,000,000 iterations in " in str(client.usage())
        wait_for(lambda: progress(bounded.handle).iterations > first.iterations)
        without_end = other.xp.while_loop(lambda s: s[0] >= 0, lambda s: s + 1, np.zeros(4))
        wait_for(lambda: progress(without_end.handle))
        assert " of " not in str(progress(without_end.handle))
    wait_for(lambda: progress(bounded.handle) is progress(without_end.handle) is None)
