"""Calls over every transport, chosen as callers choose it: values, arrays, programs and errors are the same."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import ml_dtypes
import numpy as np
import pytest

import shardcall as sc
from shardcall import P, aio

TRANSPORTS: dict[str, dict[str, bool]] = {
    "call stream, shared memory": {},
    "unary, shared memory": {"call_stream": False},
    "call stream, chunks": {"shared_memory": False},
    "unary, chunks": {"call_stream": False, "shared_memory": False},
}
MESH = sc.Mesh(a=4, b=2)
ROWS = P("a", None)
SHAPES = {  # of float64
    "empty": (0, 4),
    "small": (61, 4),  # in the request and its answer
    "beside small": (2100, 4),  # 66 KiB: above what rides along in a call stream's frame
    "shared": (8200, 4),  # 256 KiB: in shared memory, where there is any
    "several chunks": (83_000, 4),  # 2.5 MiB
}


@pytest.fixture(scope="module", params=TRANSPORTS.values(), ids=TRANSPORTS)
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of `shardcall.connect`."""
    return dict(request.param)


@pytest.fixture(scope="module")
def client(server, options) -> Iterator[sc.Client]:
    with sc.connect(server.address, **options) as connected:
        yield connected


def arrays(*names: str) -> Iterator[np.ndarray]:
    """An array of each of the sizes, or of all."""
    for name in names or SHAPES:
        yield np.random.default_rng(1).standard_normal(SHAPES[name])


def same(actual: Any, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


def test_results_are_those_of_numpy(client):
    for x in arrays():
        same(client.add(x, 2.0).array, x + 2.0)
        same(client.add(x, x, mesh=MESH, spec=ROWS).array, x + x)
    same(client.compile("add", sc.Array(x.shape, "float64"), sc.Array((), "float64"))(x, np.float64(2)).array, x + 2.0)


def test_arrays_are_put_kept_used_and_fetched(client):
    for x in arrays():
        with client.put(x, mesh=MESH, spec=ROWS) as there:
            same(there.get(), x)
            with client.add(there, x, keep=True).array as kept, client.add(kept, 1.0, keep=True).array as next_one:
                same(next_one.get(), x + x + 1.0)
                same(client.subtract(kept, there).array, (x + x) - x)


def test_submitted_calls_and_operators_are_chained(client):
    for x in arrays("empty", "small", "several chunks"):
        h = client.put(x, mesh=MESH, spec=ROWS)
        same(client.submit("multiply", client.submit("add", h, 1.0), h).get(), (x + 1.0) * x)
        same((h * 2 + np.abs(h)).get(), x * 2 + np.abs(x))


def test_functions_run_as_programs(client):
    traced = client.jit(lambda u, dt: u + dt * np.roll(u, 1, 0))
    for x in arrays("small", "several chunks"):
        same(traced(client.put(x, mesh=MESH, spec=ROWS), 0.5).get(), x + 0.5 * np.roll(x, 1, 0))


def test_results_much_larger_than_the_operands_arrive(client):
    column, row = np.arange(1500.0)[:, None], np.arange(700.0)[None, :]
    same(client.matmul(column, row).array, column @ row)


def test_elements_of_every_width_arrive(client):
    for dtype in ("bool", "int8", "uint16", "int32", "float16", "complex64", "complex128", ml_dtypes.bfloat16):
        x = np.arange(66).reshape(11, 6).astype(dtype)
        same(client.diff(x, n=0, axis=0, mesh=MESH, spec=ROWS).array, x)


def test_errors_are_the_same_and_the_next_call_is_right(client):
    for x in arrays():
        with pytest.raises(sc.AxisError) as caught:
            client.call("diff", x, axis=2)
        assert (caught.value.reason, caught.value.status) == ("AXIS_OUT_OF_RANGE", grpc.StatusCode.INVALID_ARGUMENT)
        gone = client.put(x)
        client.delete(gone.handle)
        for use in (lambda gone=gone: client.call("diff", gone, axis=0), lambda gone=gone: client.get(gone.handle)):
            with pytest.raises(sc.ArrayLostError) as lost:
                use()
            assert lost.value.reason == "ARRAY_LOST"
        same(client.add(x, x, mesh=MESH, spec=ROWS).array, x + x)


def test_values_are_refused_after_all_operands_have_arrived(client):
    for x in arrays("small", "several chunks"):
        powers = np.ones(x.shape, np.int64)
        powers[-1:] = -1
        with pytest.raises(sc.InvalidOperandError, match="a negative integer") as caught:
            client.power(powers, powers, mesh=MESH, spec=ROWS)
        with pytest.raises(sc.InvalidOperandError), client.put(powers) as there:
            client.power(powers, there, mesh=MESH, keep=True)
        assert client.list() == []
        assert (caught.value.reason, caught.value.field) == ("INVALID_VALUE", "y")
        same(client.power(powers, abs(powers), mesh=MESH, spec=ROWS).array, powers)


def test_asynchronous_calls_are_alike(server, options):
    async def calls() -> None:
        async with aio.connect(server.address, **options) as client:
            for x in arrays():
                there = await client.put(x, mesh=MESH, spec=ROWS)
                kept = (await client.add(there, x, keep=True)).array
                same(await client.get(kept), x + x)
                same((await client.subtract(kept, x)).array, (x + x) - x)
                with pytest.raises(sc.AxisError):
                    await client.call("diff", there, axis=2)

    asyncio.run(calls())
