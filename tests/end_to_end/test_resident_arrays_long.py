"""The tests of `test_resident_arrays.py` that take long."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.processes import X
from end_to_end.test_resident_arrays import LARGE, MESH, ROWS, same
from pairs import pairs_of

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


@pytest.fixture
def client(server) -> Iterator[sc.Client]:
    """A client without arrays of other tests."""
    with sc.connect(server.address) as connected:
        yield connected


@pytest.fixture
def streaming(server) -> Iterator[sc.Client]:
    with sc.connect(server.address, shared_memory=False) as connected:
        yield connected


@pytest.fixture
def unary(server) -> Iterator[sc.Client]:
    with sc.connect(server.address, shared_memory=False, call_stream=False) as connected:
        yield connected


@pytest.fixture(params=["client", "streaming", "unary"])
def either(request) -> Iterator[sc.Client]:
    """A client of each transport; each test leaves it without arrays."""
    chosen = request.getfixturevalue(request.param)
    yield chosen
    assert chosen.list() == []


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_an_operand_that_is_there_brings_its_mesh_and_its_spec(either, x):
    mesh = sc.Mesh(a=4, b=2)
    with either.put(x, mesh=mesh, spec=P("b", "a")) as there:
        result = either.diff(there, axis=0)
        same(result.array, np.diff(x, axis=0))
        assert result.plan.mesh.axes == mesh.axes
        assert result.plan.operands[0].spec == P("b", "a")


@pytest.mark.parametrize(
    ("put", "placement", "shape"),
    pairs_of(
        [P("x", None), P(None, "x"), P(None, None)],
        [
            (MESH, ROWS),
            (MESH, P(None, "x")),
            (MESH, P(None, None)),
            (sc.Mesh(x=1), ROWS),
            (sc.Mesh(x=3), ROWS),
            (sc.Mesh(a=2, b=4), P("b", "a")),
            (sc.Mesh(x=2, device_ids=[7, 5]), ROWS),
        ],
        [(64, 8), (61, 9)],  # which the mesh divides, and which it does not
    ),
    ids=str,
)
def test_an_operand_on_the_mesh_may_be_required_elsewhere(client, put, placement, shape):
    mesh, spec = placement
    x = np.random.default_rng(5).standard_normal(shape)
    with client.put(x, mesh=MESH, spec=put) as there:
        same(client.diff(there, axis=0, mesh=mesh, spec=spec).array, np.diff(x, axis=0))
        same(there.get(), x)


@pytest.mark.parametrize("x", [X, LARGE], ids=["small", "large"])
def test_results_that_stay_are_operands_of_the_next_call(either, x):
    with either.diff(x, axis=0, mesh=MESH, spec=ROWS, keep=True).array as once:
        assert (once.shape, once.dtype) == ((x.shape[0] - 1, x.shape[1]), x.dtype)
        with either.diff(once, axis=0, keep=True).array as twice:
            same(twice.get(), np.diff(np.diff(x, axis=0), axis=0))
            same(either.diff(twice, axis=0).array, np.diff(x, n=3, axis=0))
        same(once.get(), np.diff(x, axis=0))


@pytest.mark.parametrize("mesh", [sc.Mesh(x=1), MESH], ids=["one device", "eight"])
@pytest.mark.parametrize("n", [0, 1])
def test_a_kept_result_shares_no_memory_with_its_operand(client, mesh, n):
    x = client.empty(LARGE.shape)
    x[...] = LARGE
    with (
        client.put(x, mesh=mesh, spec=ROWS) as there,
        client.diff(x, n=n, axis=0, mesh=mesh, spec=ROWS, keep=True).array as result,
        client.diff(there, n=n, axis=0, keep=True).array as again,
    ):
        x[...] = np.nan
        there_too = client.diff(there, n=n, axis=0)
        there.delete()
        for values in (result.get(), again.get(), there_too.array):
            same(values, np.diff(LARGE, n=n, axis=0))


@pytest.mark.parametrize("mesh", [sc.Mesh(x=1), MESH], ids=["one device", "eight"])
@pytest.mark.parametrize("spec", [ROWS, P(None, "x")], ids=str)
def test_what_stays_keeps_its_bits_when_later_calls_reuse_the_memory(streaming, mesh, spec):
    rows = 4096
    x = np.random.default_rng(6).standard_normal((rows, 64))
    with (
        streaming.put(x, mesh=mesh, spec=spec) as there,
        streaming.diff(x, n=0, axis=0, mesh=mesh, spec=spec, keep=True).array as kept,
    ):
        for value in (np.nan, -1.0):  # of the same size: into the same regions
            with streaming.put(np.full_like(x, value), mesh=mesh, spec=spec):
                streaming.diff(np.full_like(x, value), n=0, axis=0, mesh=mesh, spec=spec)
        same(there.get(), x)
        same(kept.get(), x)


def test_an_array_of_another_server_is_refused_and_stays(client, server_factory):
    there = server_factory(devices=1, why="it is another server")
    with sc.connect(there.address) as other, other.put(X) as array:
        for use in (client.delete, client.get, client.diff):
            with pytest.raises(sc.InvalidOperandError, match="is on the server at"):
                use(array)
        assert not array.lost
        same(array.get(), X)
