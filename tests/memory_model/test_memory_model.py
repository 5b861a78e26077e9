"""Random programs of views, aliases and writes: arrays on the mesh have NumPy's values after every statement."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from memory_model.comparison import EagerComparison, Tally, TracedComparison, check
from memory_model.in_process import InProcessClient
from memory_model.programs import Program, drawn_program, new_space, run
from servers import running_server

import shardcall as sc

# Programs are compared element by element.
pytestmark = pytest.mark.filterwarnings("ignore::shardcall.ElementReadWarning")

SEED = os.environ.get("FUZZ_SEED", "2")
_COUNT, _TRACED_COUNT, _VALUES = 600, 200, 8
_BLOCKS = 20
_LONG, _LONG_TRACED, _LONG_VALUES = 37_500 // _BLOCKS, 12_500 // _BLOCKS, 400 // _BLOCKS
_MAX_SKIPPED = 0.3


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


@pytest.fixture
def figure(record_property):
    return lambda tally: record_property("figure", f"memory model, seed {SEED}: {tally}")


@pytest.fixture(scope="module")
def one_device() -> Iterator[str]:
    with running_server(devices=1) as server:
        yield server.address


@pytest.fixture(scope="module")
def fused(one_device) -> Iterator[sc.Client]:
    with sc.connect(one_device) as client:
        yield client


@pytest.fixture(scope="module")
def unfused(one_device) -> Iterator[sc.Client]:
    with sc.connect(one_device, fuse=False) as client:
        yield client


def compare(comparison, numbers: range, figure, **options: bool) -> None:
    tally = Tally()
    check(comparison, (drawn_program(SEED, number, **options) for number in numbers), tally)
    figure(tally)
    assert not tally.faults, "\n\n".join([f"{len(tally.faults)} programs differ", *tally.faults])
    assert tally.skipped.total() < _MAX_SKIPPED * tally.programs, str(tally)


def test_programs_that_once_differed():
    client = InProcessClient()
    for lines in FAULTS:
        space = new_space(inputs := {"a": "np.arange(12.0).reshape(3, 4)"}, lambda x: x)
        failing = frozenset(i for i, line in enumerate(lines) if run(line, space) is not None)
        program = Program("fault", inputs, [*lines], failing)
        assert not EagerComparison(client.put)(program, Tally()), lines


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


def test_programs_have_numpys_memory(figure):
    client = InProcessClient()
    compare(EagerComparison(client.put), range(_COUNT), figure)


def test_traced_programs_write_to_their_arguments_and_to_what_they_refer_to(figure):
    client = InProcessClient()
    compare(TracedComparison(client, client.put), range(_TRACED_COUNT), figure, is_traced=True)


def test_recorded_programs_have_numpys_values(fused, figure):
    compare(EagerComparison(fused.put, reads_all=False), range(_VALUES), figure, has_few_types=True)


def test_programs_sent_call_by_call_have_numpys_values(unfused, figure):
    compare(EagerComparison(unfused.put), range(_VALUES, 2 * _VALUES), figure, has_few_types=True)


def test_traced_programs_have_numpys_values(fused, figure):
    compare(TracedComparison(fused, fused.put), range(_VALUES), figure, is_traced=True, has_few_types=True)


@pytest.mark.long
@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_thousands_of_programs_have_numpys_memory(figure, block):
    client = InProcessClient()
    compare(EagerComparison(client.put), range(block * _LONG, (block + 1) * _LONG), figure)
    traced = range(block * _LONG_TRACED, (block + 1) * _LONG_TRACED)
    compare(TracedComparison(client, client.put), traced, figure, is_traced=True)


@pytest.mark.long
@pytest.mark.fuzz
@pytest.mark.parametrize("block", range(_BLOCKS))
def test_many_programs_have_numpys_values_on_one_device_and_on_eight(client, fused, unfused, figure, block):
    numbers = range(block * _LONG_VALUES, (block + 1) * _LONG_VALUES)
    half = len(numbers) // 2
    compare(EagerComparison(fused.put, reads_all=False), numbers, figure)
    compare(EagerComparison(unfused.put), numbers[half:], figure)
    compare(EagerComparison(client.put, reads_all=False), numbers, figure)
    compare(EagerComparison(client.put), numbers[:half], figure)
    compare(TracedComparison(fused, fused.put), numbers, figure, is_traced=True)
    compare(TracedComparison(client, client.put), numbers, figure, is_traced=True)
