"""Code that a trace could get wrong silently: it is right, or raises an error that says what to write."""

import math
import random

import numpy as np
import pytest

import shardcall as sc

U = np.random.default_rng(5).normal(size=(13, 9))


@pytest.fixture(scope="module")
def u(client):
    return client.put(U, mesh={"x": 4})


def test_numbers_are_computed_as_python_computes_them(client, u):
    powers = client.jit(lambda u, n, k: u * n**k)
    assert np.array_equal(powers(u, 2, 3).get(), U * 8)
    assert np.array_equal(powers(u, 2, -3).get(), U * 2**-3)
    assert np.array_equal(powers(u, 2, 3).get(), U * 8)
    with pytest.raises(ZeroDivisionError):
        powers(u, 0, -1)
    step = client.jit(lambda u, k: (k // 2, k % 2, -k, abs(k), k * np.ones(3), np.ones(3) / k, u[:, 0] + np.add(k, 1)))
    expected = (-2, 1, 3, 3, -3 * np.ones(3), np.ones(3) / -3, U[:, 0] - 2)
    for result, value in zip(step(u, -3), expected, strict=True):
        assert np.array_equal(result.get(), value)


def test_numbers_have_no_values(client, u):
    for needs in (lambda u, k: u if k > 0 else -u, lambda u, k: u * float(k), lambda u, k: range(k)):
        with pytest.raises(sc.TracingError, match=r"number that is an argument of .*static=.*xp\.cond"):
            client.jit(needs)(u, 1)
    for convert in (round, math.floor, math.ceil, math.trunc):
        with pytest.raises(sc.TracingError, match=rf"{convert.__name__}\(\) needs the value .* static="):
            client.jit(lambda u, k, convert=convert: u * convert(k))(u, 7)
    assert [int(item) for item in client.jit(lambda k: divmod(k, 3))(7)] == [2, 1]
    picked = client.jit(lambda u, k: u[k])
    assert np.array_equal(picked(u, 1).get(), U[1])
    assert np.array_equal(picked(u, -1).get(), U[-1])


def test_a_branch_on_values_is_refused(client, u):
    def branch(u):
        if u.sum() > 0:
            return u
        return -u

    with pytest.raises(sc.TracingError, match=r"if, .* branch \(.*np\.where or xp\.cond") as raised:
        client.jit(branch)(u)
    assert isinstance(raised.value, TypeError)
    for needs in (
        lambda u: float(u.sum()),
        lambda u: u.get(),
        lambda u: np.ma.asarray(u) + 1,
        lambda u: client.xp.identity(u.argmax()),
        lambda u: u.spec,
        lambda u: u.mesh,
        lambda u: u.handle,
        lambda u: u[u > 0],
        lambda u: 1.0 in u,
        client.get,
        lambda u: client.plan("negative", u),
        lambda u: np.add(u, 1, out=U),
    ):
        with pytest.raises(sc.TracingError, match=r"not known while .* is traced"):
            client.jit(needs)(u)
    with pytest.raises(ValueError, match="ambiguous"):
        client.jit(lambda u: u if u > 0 else -u)(u)


def test_an_error_says_how_to_avoid_values(client, u):
    labels = client.put(np.arange(13) % 3)
    for needs, message in (
        (lambda u: float(u[0, 0]), r"^float\(\) needs .*return it from the function and convert"),
        (lambda u: range(labels[0]), r"^an index of a list, a size or range\(\) needs .*return it from"),
        (lambda u: u.tolist(), r"^tolist\(\) needs .*return it from"),
        (lambda u: f"{u[0, 0]:.2f}", r"^a format needs .*return it from"),
        (lambda u: np.array([u[0, 0]], ndmin=2), r"^numpy\.array or numpy\.asarray needs .*xp\.stack"),
        (lambda u: u[labels == 1], r"^what the function returns needs the number .*np\.where\(mask, a, 0\)"),
        (np.unique, r"^this call, whose sizes .*return x from the function"),
    ):
        with pytest.raises(sc.TracingError, match=message) as raised:
            client.jit(needs)(u)
        assert "get()" not in str(raised.value)


def test_attributes_of_objects_are_those_of_the_call(client, u):
    class Model:
        rate = 0.5

        def apply(self, u):
            return u * self.rate

    model = Model()
    f = client.jit(model.apply)
    for rate in (0.5, 2.0, np.arange(9.0)):
        model.rate = rate
        assert np.array_equal(f(u).get(), U * rate)


def test_ufuncs_of_other_packages_run_if_they_are_there_and_are_refused_otherwise(client, u):
    scipy = pytest.importorskip("scipy.special")
    with pytest.raises(TypeError, match=r"scipy\.special\.ellipk does not run on the mesh"):
        client.jit(lambda u: scipy.ellipk(u) + 1)(u)
    np.testing.assert_allclose(client.jit(lambda u: scipy.expit(u) + 1)(u).get(), scipy.expit(U) + 1)


def test_an_array_of_a_trace_is_refused_after_it(client, u):
    leaked = []

    def f(u):
        leaked.append(u * 2)
        return u + 1

    client.jit(f)(u)
    for use in (
        lambda: leaked[0] + 1,
        lambda: u + leaked[0],
        lambda: np.sin(leaked[0]),
        lambda: client.matmul(leaked[0], U.T),
        lambda: client.submit("negative", x=leaked[0]),
        lambda: +leaked[0],
        lambda: float(leaked[0][0, 0]),
        lambda: client.jit(lambda v: v + leaked[0])(u),
        lambda: client.jit(lambda v: v + 1)(leaked[0]),
    ):
        with pytest.raises(sc.TracingError, match=r"f \(.*test_tracing_traps.py:\d+\) was used after"):
            use()
    assert "traced" in repr(leaked[0])


def test_a_loop_through_rows_is_a_part_of_the_program_if_it_is_short(client):
    def total(u):
        result = 0
        for k, row in enumerate(u):
            result = result + row * k
        return result

    assert np.array_equal(client.jit(total)(U[:3]).get(), total(U[:3]))
    with pytest.raises(sc.TracingError, match=r"loop over the 4096 rows .* at most 64"):
        client.jit(total)(client.put(np.ones(4096)))


def test_an_error_of_the_function_is_raised_unchanged(client, u):
    def f(u):
        raise KeyError("x")

    with pytest.raises(KeyError):
        client.jit(f)(u)
    assert np.array_equal((u + 1).get(), U + 1)


def test_numbers_stay_python_numbers(client):
    narrow, small = U.astype("f4"), np.arange(5, dtype="i1")
    result = client.jit(lambda u, dt: u * dt + 2 * dt**2 - (1 - dt) / 3, exact=True)(client.put(narrow), 0.1)
    assert result.dtype == np.float32
    assert np.array_equal(result.get(), narrow * 0.1 + 2 * 0.1**2 - (1 - 0.1) / 3)
    assert client.jit(lambda u, fill: np.where(u > 0, u, fill))(client.put(narrow), 0).dtype == np.float32
    added = client.jit(lambda n, k: (n + k, n < 1000, np.sin(k) * np.float32(1)))
    sums, below, sine = added(client.put(small), 3)
    assert (sums.dtype, sine.dtype, below.get().all()) == (np.int8, np.float64, True)
    assert np.array_equal(sums.get(), small + 3)
    assert float(sine) == pytest.approx(np.sin(3), rel=1e-14)
    with pytest.raises(sc.OperandOverflowError, match="the integer 300 beside an array of int8"):
        added(client.put(small), 300)


def test_the_types_of_numbers_do_not_depend_on_earlier_calls(client):
    u, xp = np.arange(5, dtype="u1") * 60, client.xp
    doubled = client.jit(lambda n: (xp.asarray(n) + xp.asarray(n), xp.asarray(n + 2**62)))
    for n, types in ((5, "ll"), (2**62, "lL"), (2**63, "LL"), (-5, "ll")):
        assert "".join(array.dtype.char for array in doubled(n)) == types
    beside = client.jit(lambda n, u: (u < n, n * n >= u, np.less(n, 2**65), np.clip(u, -n, n)))
    for n in (5, 300, 2**63, 2**70, 5):
        for actual, expected in zip(beside(n, u), (u < n, n * n >= u, np.less(n, 2**65), u.clip(-n, n)), strict=True):
            assert np.array_equal(actual, expected)
            assert actual.dtype == expected.dtype
    with pytest.raises(sc.OperandTypeError, match="the number is an integer below"):
        doubled(2**70)
    chosen = client.jit(lambda n, u: np.where(u > 99, u, n))
    for n in (5, -1, 300, 2**70):  # from NumPy 2.5 on, where takes none that the type does not hold
        try:
            expected = np.where(u > 99, u, n)
        except OverflowError:
            with pytest.raises(sc.OperandOverflowError, match=f"{n} beside an array of uint8"):
                chosen(n, u)
        else:
            assert np.array_equal(chosen(n, u), expected)


def test_a_bool_stays_one_of_python(client):
    u = np.arange(5, dtype="u1")

    def f(n, u):
        return u > -n, n + n, n - 2, u * n, np.add(u, n, dtype="i8"), np.add(u, 1, where=n, out=u * 0), np.atleast_1d(n)

    for n in (True, False):
        for actual, expected in zip(client.jit(f)(n, client.put(u)), f(n, u), strict=True):
            assert np.array_equal(actual, expected)
            assert actual.dtype == np.asarray(expected).dtype


def test_methods(client, u):
    class Model:
        def __init__(self, rate):
            self.rate = rate

        @client.jit
        def apply(self, u):
            return u * self.rate

        @client.jit(static=("self", "n"))
        def power(self, u, n):
            return u**n if n > 1 else u * self.rate

        slope = client.grad(lambda self, u: (u * u * self.rate).sum(), argnums=1)

    one, other = Model(2.0), Model(np.arange(9.0))
    for model in (one, other):
        assert np.array_equal(model.apply(u).get(), U * model.rate)
        assert np.array_equal(model.power(u, 1).get(), U * model.rate)
        assert np.allclose(model.slope(u).get(), 2 * U * model.rate)
    one.rate = 3.0
    assert np.array_equal(one.apply(u).get(), U * 3)
    assert np.array_equal(one.apply.repeat(u, times=2).get(), U * 3 * 3)
    assert isinstance(Model.apply, sc.TracedFunction)


def test_the_layout_of_a_result_may_be_set(client, u):
    xp, spec = client.xp, sc.P(None, "x")
    assert xp.with_spec(u, spec).spec == spec
    laid = client.jit(lambda u: xp.with_spec(u * 2, spec) + 1)
    assert laid.plan(u).results[0].spec == spec
    assert np.array_equal(laid(u).get(), U * 2 + 1)
    with pytest.raises(sc.ShardcallError, match="y"):
        client.jit(lambda u: xp.with_spec(u, sc.P("y")))(u).get()


def test_layouts_of_results_follow_the_operands(client):
    def plan(f, *specs):
        arrays = [client.put(np.ones((13, 9)), mesh={"a": 2, "b": 2}, spec=spec) for spec in specs]
        return client.jit(f).plan(*arrays).results[0].spec

    rows, columns, both = sc.P("a", None), sc.P(None, "b"), sc.P("a", "b")
    assert plan(lambda x, y: np.tanh(x[0] + y), columns, both) == both
    assert plan(lambda x, y: x @ y.T, rows, sc.P("b", None)) == both
    assert plan(lambda x, y: np.exp(x @ y.T) + 1, rows, sc.P("b", None)) == both


def test_both_branches_of_cond_are_in_the_program(client, u):
    def f(u, scale):
        return client.xp.cond(u.sum() > 0, lambda a, b: (a * b, a), lambda a, b: (a - b, b * a), u, scale)

    for array in (np.abs(U), -np.abs(U)):
        product, other = client.jit(f)(client.put(array), 2.0)
        assert np.array_equal(product.get(), array * 2 if array.sum() > 0 else array - 2)
        assert np.array_equal(other.get(), array if array.sum() > 0 else array * 2)
    with pytest.raises(TypeError, match="different structures"):
        client.xp.cond(True, lambda: (1,), lambda: [1])
    with pytest.raises(TypeError, match="shape"):
        client.xp.cond(u > 0, lambda: 1, lambda: 2)
    with pytest.raises(TypeError, match="the same type"):
        client.xp.cond(True, lambda: u, lambda: u[0])


SHIFT = 1.0


def test_values_from_outside_are_those_of_the_call(client, u, monkeypatch):
    row, options, w = np.arange(9.0), {"scale": 2}, client.put(U, mesh={"x": 4})
    factor = 2.0

    def inner(u):
        return u * (row * 2) + SHIFT

    f = client.jit(lambda u: inner(u) * options["scale"] - w * factor, exact=True)

    def check():
        assert np.array_equal(f(u).get(), (U * (row * 2) + SHIFT) * options["scale"] - w.get() * factor)

    check()
    row[3] = -1
    check()
    options["scale"] = 3
    check()
    w[2] = 7
    check()
    w = client.put(U * 3, mesh={"x": 4})
    check()
    factor = 5.0
    check()
    monkeypatch.setitem(globals(), "SHIFT", 4)
    check()


def test_random_numbers_of_this_process_are_refused(client, u):
    generator = np.random.default_rng(0)
    for f in (
        lambda u: u + np.random.normal(size=9),
        lambda u: u + np.random.rand(),
        lambda u: u + np.random.default_rng().normal(),
        lambda u: u + generator.normal(size=(13, 1)),
        lambda u: u + random.random(),
    ):
        with pytest.raises(sc.TracingError, match=r"np\.random.*client\.xp\.normal\(seed"):
            client.jit(f)(u)

    class Model:
        rng = np.random.default_rng(0)

    model = Model()
    with pytest.raises(sc.TracingError, match=r"np\.random"):
        client.jit(lambda u: client.xp.fori_loop(0, 3, lambda _, s: s + model.rng.normal(), u))(u)
    fixed = client.jit(lambda u: u + np.random.default_rng(3).normal(size=9))
    assert np.array_equal(fixed(u).get(), U + np.random.default_rng(3).normal(size=9))
    drawn = client.jit(lambda seed: client.xp.normal(seed, 5))
    assert np.array_equal(drawn(7).get(), client.normal(7, 5).array)
    assert not np.array_equal(drawn(7).get(), drawn(8).get())
