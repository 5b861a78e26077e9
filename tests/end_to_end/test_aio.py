"""The client for asyncio against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np
import pytest
from conftest import ServerProcess

import shardcall as sc
from shardcall import aio

_Value = TypeVar("_Value")
X = np.arange(2**18, dtype=np.float64).reshape(512, 512) ** 2


def with_client(server: ServerProcess, use: Callable[[aio.AsyncClient], Awaitable[_Value]]) -> _Value:
    async def run() -> _Value:
        async with aio.connect(server.address) as client:
            return await use(client)

    return asyncio.run(run())


def test_kernels_give_what_numpy_gives(server: ServerProcess) -> None:
    async def use(client: aio.AsyncClient) -> None:
        difference, product = await asyncio.gather(
            client.diff(X, axis=0, mesh=sc.Mesh(x=8), spec=sc.P("x", None)),
            client.matmul(X[:8, :4].astype(np.int64), X[:4, :8].astype(np.int64)),
        )
        np.testing.assert_array_equal(difference.array, np.diff(X, axis=0))
        np.testing.assert_array_equal(product.array, X[:8, :4].astype(np.int64) @ X[:4, :8].astype(np.int64))

    with_client(server, use)


def test_many_calls_at_once_each_get_their_own_result(server: ServerProcess) -> None:
    async def use(client: aio.AsyncClient) -> list[sc.Result]:
        kernel = await client.compile("diff", sc.Array((16,), "float64"))
        calls = [kernel(row[:16]) if i % 2 else client.diff(row[:16]) for i, row in enumerate(X[:20])]
        return await asyncio.gather(*calls)

    for row, result in zip(X[:20], with_client(server, use), strict=True):
        np.testing.assert_array_equal(result.array, np.diff(row[:16]))


def test_refusals_are_the_errors_of_the_other_client(server: ServerProcess) -> None:
    with pytest.raises(sc.AxisError) as caught:
        with_client(server, lambda client: client.diff(X, axis=2))
    assert (caught.value.axis, caught.value.ndim) == (2, 2)


def test_a_client_works_on_after_calls_that_were_cancelled(server: ServerProcess) -> None:
    large = np.ones((4096, 1024))

    async def use(client: aio.AsyncClient) -> sc.Result:
        tasks = [asyncio.create_task(client.diff(large, axis=0)) for _ in range(4)]
        await asyncio.wait(tasks, timeout=0.01)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | sc.Result) for end in ends), ends
        return await client.diff(X, axis=1)

    np.testing.assert_array_equal(with_client(server, use).array, np.diff(X, axis=1))


def test_a_private_server_ends_with_its_client() -> None:
    async def use() -> str:
        async with aio.local(devices=1) as client:
            assert (await client.diff([1.0, 4.0])).array == [3.0]
            return client.address

    address = asyncio.run(use())
    with pytest.raises(sc.ServerUnavailableError):
        sc.connect(address)
