"""Programs of views, aliases and writes: arrays on the mesh have NumPy's values and share memory as NumPy's do."""

import itertools
import sys
from collections import Counter

import numpy as np
import pytest
from client.stream_server import in_threads
from memory_model.comparison import EagerComparison, TracedComparison, compare_drawn
from memory_model.in_process import InProcessClient
from memory_model.programs import Program
from rows import rows
from servers import ServerProcess

import shardcall as sc

# Programs are compared element by element.
pytestmark = pytest.mark.filterwarnings("ignore::shardcall.ElementReadWarning")

EAGER, TRACED = 150, 50
"""The drawn programs of the short form, 200 together; test_many_programs.py has thousands."""
FAULTS = (
    ("d = a.T; a = 0; e = d.reshape(-1)", "e[0] = 5"),
    ("d = np.broadcast_to(a, (2, 3, 4)); a = 0; e = d.sum()", "d[0] = 1"),
    ("d = a[:, 1].ravel()", "d[0] = 5"),
    ("d = np.squeeze(a)", "d.shape = (4, 3)"),
    ("z = np.sum(a).reshape(1)[0]", "z += 1"),
    ("z = a[0, 0, ...]; y = np.flip(z)", "z[...] = 7"),
    ("z = a[0, 0, ...].astype(int)", "z.shape = (1, 1)"),
    ("np.matmul(a, np.ones((4, 1)), out=a[:, :0])",),
    ("np.matmul(a[None], np.ones((4, 4)), out=a)",),
    ("d = a[:0].diagonal()", "d.flat[-1] = 6"),
    ("b = a @ np.ones((4, 4))", "np.dot(b, np.ones((4, 4)), out=a.T[:, :3].T)"),
)
"""Programs that once differed: statements of an array a of three rows and four columns."""


def test_programs_that_once_differed():
    client = InProcessClient()
    for lines in FAULTS:
        program = Program("fault", {"a": "np.arange(12.0).reshape(3, 4)"}, [*lines])
        assert not EagerComparison(client.put)(program, Counter()), lines


@rows("kind", ["array", "view", "bucket", "traced", "out", "both"])
def test_no_write_of_several_threads_is_lost_and_no_reader_sees_a_part_of_one(kind):
    client, before = InProcessClient(), sys.getswitchinterval()
    array = client.put(np.zeros(37))
    array = client.bucket(array) if kind == "bucket" else array
    array = array[2:7] if kind in ("view", "both") else array  # which nobody else shares

    def write(array):
        array += 1

    writes = {"traced": client.jit(write), "out": lambda a: np.add(a, 1, out=a)}
    writes, seen = [write, *writes.values()] if kind == "both" else [writes.get(kind, write)], []

    def work(thread):
        for i in range(15):
            writes[(thread + i) % len(writes)](array)
            seen.append(array.get())

    sys.setswitchinterval(1e-6)
    try:
        assert in_threads(8, work) == [None] * 8
    finally:
        sys.setswitchinterval(before)
    assert {*array.get().tolist()} == {8 * 15.0}
    assert all(len({*values.tolist()}) == 1 for values in seen)


def test_a_traced_function_returns_what_it_refers_to_and_writes():
    client = InProcessClient()
    a = client.put(np.arange(4.0))
    zero = client.put(np.array(1.0))
    shaped = client.put(np.arange(4.0))
    alone = client.put(np.arange(4.0))[1:]

    def function():
        nonlocal zero, alone
        a[0] = 7
        alone += 1
        zero += 1
        shaped[0] = 9
        shaped.shape = (2, 2)
        return a, a[:2], zero

    returned, part, number = client.jit(function)()
    returned += 1
    assert (a.get().tolist(), part.get().tolist(), number.get(), zero.get()) == ([8, 2, 3, 4], [8, 2], 2, 2)
    assert shaped.get().tolist() == [[9, 1], [2, 3]]
    assert alone.get().tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    "read", [lambda a: a.get(), np.ma.asarray, lambda a: np.array([a], ndmin=3), lambda a: a.tolist()]
)
def test_values_of_arrays_that_a_traced_function_refers_to_are_refused(read):
    client = InProcessClient()
    a = client.put(np.arange(4.0))
    with pytest.raises(sc.TracingError, match="needs values of an array"):
        client.jit(lambda x: x + read(a))(np.ones(4))


def test_programs_have_numpys_memory(record_property):
    client = InProcessClient()
    compare_drawn(EagerComparison(client.put), range(EAGER), record_property)


def test_traced_programs_write_to_their_arguments_and_to_what_they_refer_to(record_property):
    client = InProcessClient()
    compare_drawn(TracedComparison(client, client.put), range(TRACED), record_property, is_traced=True)


def test_programs_have_numpys_values_on_the_mesh(client, server: ServerProcess, record_property):
    compare_drawn(EagerComparison(client.put, reads_all=False), range(2), record_property, has_few_types=True)
    traced = TracedComparison(client, client.put)
    compare_drawn(traced, range(2), record_property, is_traced=True, has_few_types=True)
    with sc.connect(server.address, fuse=False) as unfused:
        compare_drawn(EagerComparison(unfused.put), range(2, 4), record_property, has_few_types=True)


X = np.arange(1.0, 13.0).reshape(3, 4)
ARGUMENTS = (
    *((X,), (X, 0), (X, 1), (X, -1), (X, 0, 1), (X, X), ([X],), (X, (3, 4)), (X, [0]), (X, (1, 0)), ("ij->ji", X)),
    *((X[:1],), (X[0],), (X[0], 0), (X[0], 1), (X > 0, X), (X > 0, X, X), ([X > 0], [X], X), (X, None, None), (X, [])),
    *((X.astype(int),), (X.astype(complex),), (X.astype(int), 0), (X[0, 0],), (X[:, :3],), (X, [], 0), (X, 1, 0)),
    *((0, [X, X]), (X[0].astype(int) % 1, [X[0]]), (X, [lambda x: x]), ([X, X], 0), (X, [1, 2]), (X, 0, -1)),
)
LEFT_OUT = {
    *("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require", "frombuffer", "from_dlpack"),
    *("may_share_memory", "shares_memory"),  # which are not about results
    "broadcast_arrays",  # whose results can be written to in NumPy, with a warning
    "asarray_chkfinite",
    "diff",  # of order 0, NumPy's result is the array itself
}


def arrays_of(value):
    """The arrays in a result."""
    items = value if isinstance(value, tuple | list) else [value]
    return [item for item in items if isinstance(item, np.ndarray | sc.RemoteArray)]


def placed(put, value, arrays):
    """An argument with its arrays put elsewhere, which are also added to a list."""
    if isinstance(value, np.ndarray):
        arrays.append(put(value))
        return arrays[-1]
    return [placed(put, item, arrays) for item in value] if type(value) is list else value


def test_results_share_memory_where_numpys_do():
    client = InProcessClient()
    names = [name for name in client.xp.function_names if hasattr(np, name) and name not in LEFT_OUT]
    compared, wrong = 0, []
    for name, arguments in itertools.product(names, ARGUMENTS):
        here, there = [], []
        try:
            expected = arrays_of(getattr(np, name)(*[placed(np.copy, item, here) for item in arguments]))
            actual = arrays_of(getattr(np, name)(*[placed(client.put, item, there) for item in arguments]))
        except Exception:  # noqa: BLE001  # calls that one of them refuses
            continue
        if len(expected) != len(actual) or not there:
            continue
        for numpys, mine in zip(expected, actual, strict=True):
            compared += 1
            shared = [np.shares_memory(numpys, item) for item in here]
            if shared != [np.shares_memory(mine, item) for item in there]:
                wrong.append((name, arguments, shared))
            elif isinstance(mine, sc.RemoteArray) and numpys.flags.writeable != mine.flags.writeable:
                wrong.append((name, arguments, "writeable", numpys.flags.writeable))
    assert not wrong, "\n".join(str(item).replace("\n", " ") for item in wrong)
    assert compared > 1000
