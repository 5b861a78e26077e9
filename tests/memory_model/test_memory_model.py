"""Random programs of views, aliases and writes: arrays on the mesh have NumPy's values after every statement."""

from collections import Counter

import numpy as np
import pytest
from memory_model.comparison import EagerComparison, TracedComparison, compare_drawn
from memory_model.in_process import InProcessClient
from memory_model.programs import Program
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
    ("b = a @ np.ones((4, 4))", "np.dot(b, np.ones((4, 4)), out=a.T[:, :3].T)"),
)
"""Programs that once differed: statements of an array a of three rows and four columns."""


def test_programs_that_once_differed():
    client = InProcessClient()
    for lines in FAULTS:
        program = Program("fault", {"a": "np.arange(12.0).reshape(3, 4)"}, [*lines])
        assert not EagerComparison(client.put)(program, Counter()), lines


def test_a_traced_function_returns_what_it_refers_to_and_writes():
    client = InProcessClient()
    a = client.put(np.arange(4.0))
    zero = client.put(np.array(1.0))
    shaped = client.put(np.arange(4.0))

    def function():
        nonlocal zero
        a[0] = 7
        zero += 1
        shaped[0] = 9
        shaped.shape = (2, 2)
        return a, a[:2], zero

    returned, part, number = client.jit(function)()
    returned += 1
    assert (a.get().tolist(), part.get().tolist(), number.get(), zero.get()) == ([8, 2, 3, 4], [8, 2], 2, 2)
    assert shaped.get().tolist() == [[9, 1], [2, 3]]


@pytest.mark.parametrize("read", [lambda a: a.get(), np.asarray, lambda a: np.array([a, a]), lambda a: a.tolist()])
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
