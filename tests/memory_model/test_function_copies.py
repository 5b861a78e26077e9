"""Functions of the caller that create arrays run as copies in a trace; all that they see and change is the caller's."""

import functools
import sys
import threading
import types

import numpy as np
import numpy as other_name
import pytest
from memory_model.in_process import InProcessClient
from numpy import zeros as nothing
from rows import rows

import shardcall as sc

X = np.array([0.5, -1.5, 2.25])
CALLS = 0
SCALE = 2.0


def filled(x, create=np.zeros):
    z = create(3)
    z[:] = x
    return z


def by_a_helper(x):
    return filled(x) * SCALE


def by_another_name(x):
    z, y = nothing(3), other_name.ones(3)
    z[0], y[1] = x[0], x[1]
    return z + y


def by_recursion(x, n=3):
    return x if n == 0 else filled(by_recursion(x, n - 1) + 1)


def by_a_keyword(x, *, create=np.ones):
    return filled(x, create=create)


def twice(function):
    @functools.wraps(function)
    def run(x):
        return function(function(x))

    return run


@twice
def decorated(x):
    z = np.zeros(3)
    z[::-1] = x
    return z + x


def by_a_generator(x):
    def rows_of(x):
        z = np.zeros(3)
        for i in range(3):
            z[i] = x[i] + i
            yield z * 1

    return sum(rows_of(x))


def by_a_closure(x):
    count = 0

    def add(x):
        nonlocal count
        count += 1
        return filled(x) + count

    return add(x) + add(x)


def by_a_class(x):
    class Filled:
        scale = SCALE

        def of(self, x):
            return filled(x) * self.scale + np.ones(3)

    return Filled().of(x)


OTHER = types.ModuleType("helpers")
OTHER.__file__ = "helpers.py"
TEXT = """
import numpy as np
def fill(x):
    z = np.zeros(3)
    z[1:] = x[1:]
    return z
"""
exec(compile(TEXT, "helpers.py", "exec"), vars(OTHER))


def by_another_module(x):
    OTHER.seen = x.shape
    return OTHER.fill(x) + len(OTHER.seen)


class Model:
    def __init__(self):
        self.scale = 2.0
        self.calls = 0

    def step(self, x):
        self.calls += 1
        return self.shifted(x) * self.scale + Model.first(x)

    def shifted(self, x):
        z = np.zeros(3)
        z[1:] = x[:-1]
        return z

    @staticmethod
    def first(x):
        return x[0]


MODEL = Model()


@rows(
    "function",
    [
        *(filled, by_a_helper, by_another_name, by_recursion, by_a_keyword, decorated, by_a_generator, by_a_closure),
        *(
            by_a_class,
            by_another_module,
            MODEL.step,
            functools.partial(filled, create=np.empty),
            lambda x: MODEL.shifted(x) if 0 else filled(x),
        ),
    ],
)
def test_all_functions_of_the_caller_create_arrays_of_the_program(function):
    np.testing.assert_allclose(InProcessClient().jit(function)(X).get(), function(X), strict=True)


def test_functions_of_loops_branches_and_transformations_are_copied():
    client = InProcessClient()
    xp, traced = client.xp, client.jit(filled)
    function = client.jit(
        lambda x: (
            xp.fori_loop(0, 2, lambda _, u: filled(u) + 1, x),
            xp.cond(x[0] > 0, filled, filled, x),
            xp.scan(lambda total, row: (total, filled(total * row)), x, x)[1],
            client.vmap(filled)(np.ones((2, 1)) * x),
            client.grad(lambda x: filled(x).sum())(x),
            traced(x),
        )
    )
    assert len(function.trace(X).types) == 6


def counted(x):
    global CALLS  # noqa: PLW0603  # the subject of the test
    CALLS += 1
    return x + CALLS


def counted_twice(x):
    return counted(filled(x)) + counted(x) + CALLS


def test_global_variables_are_those_of_the_module(monkeypatch):
    monkeypatch.setitem(globals(), "CALLS", 0)
    function = InProcessClient().jit(counted_twice)
    assert function(X).get().tolist() == (2 * X + 5).tolist()
    assert CALLS == 2
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert InProcessClient().jit(by_a_helper)(X).get().tolist() == (3 * X).tolist()


def creates_and_counts(x):
    global CALLS  # noqa: PLW0603  # the subject of the test
    CALLS += 1
    return filled(x)


def test_a_function_that_assigns_global_variables_is_run_as_it_is():
    with pytest.raises(sc.TracingError, match=r"an assignment to elements of an array of this process"):
        InProcessClient().jit(creates_and_counts)(X)


def in_a_debugger(text, frame):
    return eval(text, frame.f_globals)


def test_a_copy_has_the_name_and_the_lines_of_the_function():
    seen = []

    def function(x):
        frame = sys._getframe()
        seen.append((frame.f_lineno, frame.f_code, function.__name__, function.__qualname__, function.note))
        seen[-1] += (in_a_debugger("SCALE", frame),)
        return filled(x)

    function.note = "of the caller"
    function(X)
    InProcessClient().jit(function)(X)
    assert seen[0] == seen[1]


def test_numpy_itself_stays_as_it_is():
    created = []

    def function(x):
        thread = threading.Thread(target=lambda: created.append(type(np.zeros(3))))
        thread.start()
        thread.join()
        created.append(type(sys.modules["numpy"].zeros(3)))
        return filled(x)

    InProcessClient().jit(function)(X)
    assert created == [np.ndarray, np.ndarray]


def test_a_function_that_creates_no_arrays_is_not_copied():
    seen = []

    def plain(x):
        return x + SCALE

    def function(x):
        seen.extend([plain, filled, MODEL, np])
        return filled(plain(x))

    InProcessClient().jit(function)(X)
    assert seen[0] is plain
    assert seen[1] is not filled
    assert seen[2] is MODEL
    assert isinstance(seen[3], types.ModuleType)
    seen[1](X)[0] = 1  # after the trace it creates arrays of this process
    assert type(seen[1](X)) is np.ndarray
