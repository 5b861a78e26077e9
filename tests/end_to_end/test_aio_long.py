"""The tests of `test_aio.py` that take long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.test_aio import TRANSPORTS, X, with_client
from servers import ServerProcess, holds_nothing, running_server

import shardcall as sc
from shardcall import aio

pytestmark = pytest.mark.long


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


@TRANSPORTS
def test_many_puts_at_once_create_different_arrays(
    quiet_server: ServerProcess, observer: sc.Client, shared_memory: bool
) -> None:
    async def use(client: aio.AsyncClient) -> None:
        arrays = await asyncio.gather(*(client.put(X + i) for i in range(20)))
        assert len(await client.list()) == observer.usage().arrays == 20
        for i, back in enumerate(await asyncio.gather(*(array.get() for array in arrays))):
            np.testing.assert_array_equal(back, X + i)

    with_client(quiet_server, use, shared_memory=shared_memory)


@TRANSPORTS
def test_puts_cancelled_at_any_moment_leave_nothing_behind_their_client(
    quiet_server: ServerProcess, observer: sc.Client, shared_memory: bool
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

    with_client(quiet_server, use, shared_memory=shared_memory)


def test_a_private_server_ends_with_its_client() -> None:
    async def use() -> str:
        async with aio.local(devices=1) as client:
            assert (await client.diff([1.0, 4.0])).array == [3.0]
            return client.address

    address = asyncio.run(use())
    with pytest.raises(sc.ServerUnavailableError):
        sc.connect(address)


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
        doubled = client.jit(lambda v: v * 2)
        assert np.array_equal(await (await doubled.repeat(u, times=5)).get(), np.arange(8.0) * 32)
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
