"""The client for asyncio against a real server."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import numpy as np
import pytest
from end_to_end.processes import stopped, wait_for
from servers import ServerProcess, holds_nothing

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
    leasing_server: ServerProcess, observer: sc.Client, shared_memory: bool
) -> None:
    async def use(client: aio.AsyncClient) -> None:
        with stopped(leasing_server):
            task = asyncio.create_task(client.put(X))
            await asyncio.to_thread(wait_for, lambda: observer.usage().leases == 1)  # it has come to the server
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.to_thread(wait_for, lambda: holds_nothing(observer))
        assert await client.list() == []
        np.testing.assert_array_equal(await (await client.put(X)).get(), X)

    with_client(leasing_server, use, shared_memory=shared_memory)


def test_closing_ends_puts_in_flight(leasing_server: ServerProcess, observer: sc.Client) -> None:
    async def use() -> None:
        async with aio.connect(leasing_server.address) as client:
            with stopped(leasing_server):
                task = asyncio.create_task(client.put(X))
                await asyncio.to_thread(wait_for, lambda: observer.usage().leases == 1)
                await client.close()
                with pytest.raises(sc.CallCancelledError):
                    await task

    asyncio.run(use())


@TRANSPORTS
def test_many_puts_at_once_create_different_arrays(
    leasing_server: ServerProcess, observer: sc.Client, shared_memory: bool
) -> None:
    async def use(client: aio.AsyncClient) -> None:
        arrays = await asyncio.gather(*(client.put(X + i) for i in range(20)))
        assert len(await client.list()) == observer.usage().arrays == 20
        for i, back in enumerate(await asyncio.gather(*(array.get() for array in arrays))):
            np.testing.assert_array_equal(back, X + i)

    with_client(leasing_server, use, shared_memory=shared_memory)


@TRANSPORTS
def test_puts_cancelled_at_any_moment_leave_nothing_behind_their_client(
    leasing_server: ServerProcess, observer: sc.Client, shared_memory: bool
) -> None:
    async def use(client: aio.AsyncClient) -> None:
        for _ in range(5):
            tasks = [asyncio.create_task(client.put(X)) for _ in range(8)]
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            ends = await asyncio.gather(*pending, return_exceptions=True)
            assert all(isinstance(end, asyncio.CancelledError) for end in ends), ends
            assert all(isinstance(task.result(), aio.AsyncRemoteArray) for task in done)

    with_client(leasing_server, use, shared_memory=shared_memory)


def test_a_cancelled_call_keeps_the_array_that_its_function_changes_and_returns(server: ServerProcess) -> None:
    traced, cancelled = threading.Event(), threading.Event()

    def increment(u):
        traced.set()
        cancelled.wait(60)
        u += 1
        return u

    async def use(client: aio.AsyncClient) -> list[float]:
        u = await client.put(np.zeros(4))
        call = asyncio.create_task(client.jit(increment)(u))
        await asyncio.to_thread(traced.wait, 60)
        call.cancel()
        await asyncio.sleep(0)  # the task is cancelled
        cancelled.set()
        with pytest.raises(asyncio.CancelledError):
            await call
        return (await u.get()).tolist()

    assert with_client(server, use) in ([0.0] * 4, [1.0] * 4)


def test_functions_are_traced_and_awaited(server: ServerProcess) -> None:
    async def use(client: aio.AsyncClient) -> None:
        @client.jit(static="power")
        def powers(state, power):
            return {"u": state["u"] ** power, "n": state["n"] + 1}

        @client.jit
        def summed(u):
            once = powers({"u": u, "n": 0}, 2)  # a part of this program, and not awaited
            return client.xp.fori_loop(0, 2000, lambda i, s: s + 1, once["u"].sum())

        u = await client.put(np.arange(8.0), mesh={"x": 4})
        result = await powers({"u": u, "n": 0}, 3)
        assert isinstance(result["u"], aio.AsyncRemoteArray)
        assert np.array_equal(await result["u"].get(), np.arange(8.0) ** 3)
        assert float(await (await summed(u)).get()) == 140 + 2000
        assert len(await summed.plan(u)) == 2
        assert len(summed._wrapped._programs) == 1  # not traced again, though it refers to the client
        assert np.array_equal(await (await client.jit(lambda v: v * 2).repeat(u, times=5)).get(), np.arange(8.0) * 32)
        loss = client.jit(lambda w: (w * w).sum())
        value, gradient = await client.value_and_grad(loss)(u)
        assert float(await value.get()) == 140
        gradients = await client.vmap(client.grad(loss))(np.ones((3, 2)))
        assert np.array_equal(await gradients.get(), np.full((3, 2), 2.0))
        assert np.array_equal(await gradient.get(), np.arange(8.0) * 2)
        with pytest.raises(sc.InvalidOperandError, match="y has shape"):
            await client.jit(lambda v: v + np.ones(3))(u)
        with pytest.raises(RuntimeError, match="xp of an asynchronous client"):
            _ = client.xp

    with_client(server, use)
