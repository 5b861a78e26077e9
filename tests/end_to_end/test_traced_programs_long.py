"""Traced programs that take long: loops in loops, the lines of their errors, and as many calls as there may be."""

import numpy as np
import pytest
from end_to_end.processes import is_busy, wait_for
from end_to_end.test_traced_loops import ROWS, U
from end_to_end.test_traced_programs import X, at, inverted, of_an_index

import shardcall as sc
from shardcall_core.graphs.graph import Graph, Node, Value

pytestmark = pytest.mark.long


def test_a_program_of_many_calls(client):
    def many(u, c):
        for _ in range(2048):
            u = u * 0.5 + c
        return u

    assert np.array_equal(client.jit(many)(client.put(U, **ROWS), 0.25).get(), many(U, 0.25))


def test_a_program_of_many_arguments_and_results(client):
    arrays = [np.full(3, k) for k in range(1024)]
    results = client.jit(lambda arrays: [x + x for x in arrays])(arrays)
    assert all(np.array_equal(result.get(), 2 * x) for result, x in zip(results, arrays, strict=True))


def test_loops_in_loops(client):
    xp, u = client.xp, client.put(U, **ROWS)

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
    assert np.allclose(client.jit(lambda s: f(s, 2)).repeat(u, times=1).get(), f(u, 2).get())


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


def test_a_part_of_a_column_is_read_and_written_where_it_is(client):
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
    u = client.put(U, **ROWS)
    assert np.allclose(client.jit(lambda u: swept(client.xp, u))(u).get(), expected)
    g = client.jit(lambda u: client.xp.fori_loop(1, 9, lambda j, u: u.at[1:-1, j].multiply(2.0), u))
    doubled = U.copy()
    doubled[1:-1, 1:] *= 2
    assert np.allclose(g(u).get(), doubled)
    kernels = [node.kernel for body in g.trace(u).form.nodes[-1].parameters for node in getattr(body[1], "nodes", ())]
    assert kernels.index("take") < kernels.index("getitem") < kernels.index("put_at")


def in_a_loop(xp, u):
    def body(_, v):
        w = v + 1
        return xp.linalg.inv(v * 0) + w  # 3

    return xp.fori_loop(0, 5, body, u + 1)


def in_a_slice(xp, u):
    v = xp.fori_loop(
        0,
        xp.sum(u != 7),
        lambda _, v: xp.linalg.inv(v * 0),  # 4
        u * 2,
    )
    return v + 1


def behind_slices(xp, u):
    v = xp.fori_loop(0, 2000, lambda _, v: v + 1, u) + 1
    return np.transpose(v) @ v + xp.linalg.inv(v * 0)  # 2


def in_a_branch(xp, u):
    return xp.cond(
        u.sum() > 0,
        lambda v: xp.linalg.inv(v - v) + v,  # 3
        lambda v: v,
        u,
    )


REFUSED = {
    "in a function": (inverted, 1, "inv", sc.LinAlgError),
    "in a loop": (in_a_loop, 3, "inv", sc.LinAlgError),
    "in a loop that runs in slices": (in_a_slice, 4, "inv", sc.LinAlgError),
    "behind a loop that runs in slices": (behind_slices, 2, "inv", sc.LinAlgError),
    "in a branch": (in_a_branch, 3, "inv", sc.LinAlgError),
    "an index": (of_an_index, 1, "take", sc.IndexOutOfRangeError),
}


@pytest.mark.parametrize(("function", "line", "kernel", "error"), REFUSED.values(), ids=REFUSED)
def test_errors_of_values_name_the_line(client, function, line, kernel, error):
    result = client.jit(lambda u: function(client.xp, u))(client.put(X))
    with pytest.raises(error, match=r"^<lambda> \(.*, failed: " + at(function, line, kernel)):
        result.get()
