"""The client for asyncio against a real server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import pytest
from end_to_end.processes import wait_for
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc
from shardcall import aio

_Value = TypeVar("_Value")
X = np.arange(2**18, dtype=np.float64).reshape(512, 512) ** 2
TRANSPORTS = pytest.mark.parametrize("shared_memory", [True, False], ids=["shared memory", "messages"])


def with_client(
    server: ServerProcess, use: Callable[[aio.AsyncClient], Awaitable[_Value]], *, shared_memory: bool = True
) -> _Value:
    async def run() -> _Value:
        async with aio.connect(server.address, shared_memory=shared_memory) as client:
            return await use(client)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def quiet_server() -> Iterator[ServerProcess]:
    """A server of this test alone, with short leases."""
    with running_server("--trim-after-s", "0.2", "--lease-s", "3", why="its leases are short") as running:
        yield running


@pytest.fixture
def observer(quiet_server: ServerProcess) -> Iterator[sc.Client]:
    """Looks on; afterwards nothing is left on the server."""
    with sc.connect(quiet_server.address, shared_memory=False) as client:
        yield client
        wait_for(lambda: holds_nothing(client))


@contextmanager
def stopped_worker(server: ServerProcess) -> Iterator[None]:
    """Nothing that is handed to the mesh is answered in the body."""
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def test_kernels_give_what_numpy_gives(server: ServerProcess) -> None:
    async def use(client: aio.AsyncClient) -> None:
        difference, product = await asyncio.gather(
            client.diff(X, axis=0, mesh=sc.Mesh(x=8), spec=sc.P("x", None)),
            client.matmul(X[:8, :4].astype(np.int64), X[:4, :8].astype(np.int64)),
        )
        np.testing.assert_array_equal(difference.array, np.diff(X, axis=0))
        np.testing.assert_array_equal(product.array, X[:8, :4].astype(np.int64) @ X[:4, :8].astype(np.int64))

    with_client(server, use)


def test_many_calls_at_once_get_the_right_results(server: ServerProcess) -> None:
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


@TRANSPORTS
def test_arrays_that_stay_are_put_worked_on_and_fetched(server: ServerProcess, shared_memory: bool) -> None:
    async def use(client: aio.AsyncClient) -> None:
        h = await client.put(X, mesh=sc.Mesh(x=8), spec=sc.P("x"))
        first = (await client.diff(h, axis=0, keep=True)).array
        kernel = await client.compile("diff", sc.Array(first.shape, "float64"), axis=1, mesh=h.mesh)
        async with (await kernel(first, keep=True)).array as second:
            np.testing.assert_array_equal(await second.get(), np.diff(np.diff(X, axis=0), axis=1))
            assert await client.list() == [h, first, second]
        assert await client.list() == [h, first]
        await first.delete()
        with pytest.raises(sc.ArrayLostError):
            await client.diff(first)
        np.testing.assert_array_equal(await client.get(h), X)

    with_client(server, use, shared_memory=shared_memory)


@TRANSPORTS
def test_a_put_cancelled_in_flight_leaves_no_array(
    quiet_server: ServerProcess, observer: sc.Client, shared_memory: bool
) -> None:
    async def use(client: aio.AsyncClient) -> None:
        with stopped_worker(quiet_server):
            task = asyncio.create_task(client.put(X))
            await asyncio.to_thread(wait_for, lambda: observer.usage().leases == 1)  # it has come to the server
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.to_thread(wait_for, lambda: holds_nothing(observer))
        assert await client.list() == []
        np.testing.assert_array_equal(await (await client.put(X)).get(), X)

    with_client(quiet_server, use, shared_memory=shared_memory)


def test_closing_ends_puts_in_flight(quiet_server: ServerProcess, observer: sc.Client) -> None:
    async def use() -> None:
        async with aio.connect(quiet_server.address) as client:
            with stopped_worker(quiet_server):
                task = asyncio.create_task(client.put(X))
                await asyncio.to_thread(wait_for, lambda: observer.usage().leases == 1)
                await client.close()
                with pytest.raises(sc.CallCancelledError):
                    await task

    asyncio.run(use())
