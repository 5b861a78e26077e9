"""Programs have the errors that docs/accuracy.md states, in both modes."""

import numpy as np
import pytest
from accuracy import document, programs

import shardcall as sc

pytestmark = pytest.mark.long

STATED = programs.parsed(document.PATH.read_text())


@pytest.fixture(scope="module")
def client(server):
    with sc.connect(server.address) as client:
        yield client


@pytest.mark.parametrize("name", programs.EXPRESSIONS)
def test_errors_are_those_of_the_table(client, name):
    for stated, error in zip(STATED[name], programs.measured(client, name), strict=True):
        assert error <= 1.1 * stated + 0.01


@pytest.mark.parametrize("name", programs.EXPRESSIONS)
def test_exact_programs_are_the_calls_one_by_one(client, name):
    expression, arrays = programs.EXPRESSIONS[name], programs.operands("float64")
    alone = expression(client.xp, *map(client.put, arrays)).get()
    exact = client.jit(lambda x, y, z: expression(np, x, y, z), exact=True)
    assert np.array_equal(exact(*arrays).get(), alone)
