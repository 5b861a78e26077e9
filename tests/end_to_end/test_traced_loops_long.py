"""The tests of `test_traced_loops.py` that take long."""

import numpy as np
import pytest
from end_to_end.processes import is_busy, wait_for
from end_to_end.test_traced_loops import U

import shardcall as sc
from shardcall_core.graphs.graph import Graph, Node, Value

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


@pytest.fixture(scope="module")
def u(client):
    return client.put(U, mesh={"x": 4}, spec=("x", None))


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


def test_loops_in_loops(client, u):
    xp = client.xp

    @client.jit
    def f(u, count):
        scale = u.max()

        def row(carry, x):
            return xp.while_loop(lambda c: c.sum() < 100, lambda c: abs(c) * 2 + scale, carry + x), carry.sum()

        def body(i, state):
            last, sums = xp.scan(row, state.sum(axis=0), u)
            return xp.cond(i == 0, lambda: state + 1, lambda: state - last + sums[0])

        return xp.fori_loop(0, count, body, u)

    state = U
    for i in range(3):
        carry, sums = state.sum(axis=0), []
        for x in U:
            sums.append(carry.sum())
            carry = carry + x
            while carry.sum() < 100:
                carry = abs(carry) * 2 + U.max()
        state = state + 1 if i == 0 else state - carry + sums[0]
    assert np.allclose(f(u, 3).get(), state)
    steps = client.jit(lambda s: f(s, 2))
    assert np.allclose(steps.repeat(u, times=1).get(), f(u, 2).get())


def test_a_loop_without_end_leaves_others_served(client, server):
    pids = server.worker_pids()
    other = sc.connect(server.address)
    try:
        endless = other.xp.fori_loop(0, 2**62, lambda i, s: s + 1, np.zeros(4))
        for k in range(5):
            assert (client.put(np.arange(4)) + k).get().tolist() == [k, k + 1, k + 2, k + 3]
        with pytest.raises(TimeoutError):
            endless.get(timeout=0.2)
    finally:
        other.close()  # which ends the loop
    node = Node("add", (Value(-1, 0), Value(-1, 1)))
    loop = {"graph": Graph((node,), (Value(0, 0),)), "carried": (0,)}
    with pytest.raises(sc.DeadlineExceededError):
        client.call("graph", np.zeros(4), np.float64(1), np.int64(2**62), **loop, timeout=0.7)
    wait_for(lambda: not is_busy(client))
    assert client.call("graph", np.zeros(4), 1.0, np.int64(10**5), **loop).array.tolist() == [1e5] * 4
    assert server.worker_pids() == pids


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
    wait_for(lambda: not is_busy(client))
    assert client.usage().loops == ()


def test_a_part_of_a_column_is_read_and_written_where_it_is(client, u):
    def swept(xp, u):
        def body(j, u):
            u[1:-1, j] += 0.5 * u[1:-1, j - 1]
            u[j % 3, ::2] = u[::-1, j][:5]
            return u

        return xp.fori_loop(1, 9, body, u)

    expected = U.copy()
    for j in range(1, 9):
        expected[1:-1, j] += 0.5 * expected[1:-1, j - 1]
        expected[j % 3, ::2] = expected[::-1, j][:5]
    f = client.jit(lambda u: swept(client.xp, u))
    assert np.allclose(f(u).get(), expected)
    g = client.jit(lambda u: client.xp.fori_loop(1, 9, lambda j, u: u.at[1:-1, j].multiply(2.0), u))
    doubled = U.copy()
    doubled[1:-1, 1:] *= 2
    assert np.allclose(g(u).get(), doubled)
    kernels = [node.kernel for body in g.trace(u).form.nodes[-1].parameters for node in getattr(body[1], "nodes", ())]
    assert kernels.index("take") < kernels.index("getitem") < kernels.index("put_at")
