"""Arrays that stay, awaited, on a server that keeps them in a dict."""

import asyncio
import threading
from functools import partial

import numpy as np
import pytest
from client.conftest import cancel, with_client

import shardcall
from shardcall import Array, P
from shardcall._src.device_arrays.remote_array import mark_lost


def test_arrays_are_put_read_listed_and_deleted(memory):
    async def use(client):
        h = await client.put(np.arange(6.0).reshape(2, 3), spec=P("x"))
        for back in (await h.get(), await client.get(h), await client.get(h.handle)):
            np.testing.assert_array_equal(back, np.arange(6.0).reshape(2, 3))
        with pytest.raises(shardcall.InvalidOperandError, match="on the mesh"):
            await client.put(h)
        async with await client.put([1.0]) as second:
            assert await client.list() == [h, second]
            assert [await client.describe(h), await client.describe(second.handle)] == [h, second]
        assert len(memory.stored) == 1
        with pytest.raises(shardcall.ArrayLostError, match="which was deleted"):
            await second.get()
        await second.delete()
        assert await client.delete(h) == 1
        assert h.lost

    with_client(memory.server.address, use)
    assert memory.stored == {}


def test_array_attributes_equal_those_of_the_other_client(memory):
    async def use(client):
        h = await client.put(np.zeros((4, 3), np.float32), spec=P("x"))
        plain = h.__remote_array__()
        names = ("handle", "type", "shape", "dtype", "ndim", "size", "nbytes", "mesh", "spec", "padded_shape")
        for name in (*names, "device_bytes", "lost"):
            assert getattr(h, name) == getattr(plain, name), name
        assert repr(h) == repr(plain).replace("<RemoteArray", "<AsyncRemoteArray")
        assert h.visualize() == plain.visualize()
        mark_lost(plain, "which was deleted")
        assert h.lost

    with_client(memory.server.address, use)


def test_an_array_is_an_operand_of_every_method(memory):
    x = np.arange(4.0).reshape(2, 2)

    async def use(client):
        h = await client.put(x)
        memory.calls.clear()
        kernel = await client.compile("diff", Array((2, 2), "float64"), prepend=h)
        results = [await client.call("echo", h), await client.diff(x, append=h), await client.matmul(h, h)]
        results.append(await kernel(h))
        assert (await client.plan("diff", h)).kernel == "echo"
        with pytest.raises(shardcall.InvalidOperandError, match="kep="):
            await kernel(h, kep=h)
        return results

    for result in with_client(memory.server.address, use):
        for array in result.arrays:
            np.testing.assert_array_equal(array, x)
    sources = [[operand.WhichOneof("source") for operand in call.operands] for call in memory.calls]
    assert sources == [["resident"], ["inline", None, "resident"], ["resident"] * 2, ["resident"] * 2]


def test_an_array_is_an_operand_of_the_other_client_too(memory):
    async def use(client):
        h = await client.put([1.0, 2.0])
        with shardcall.connect(memory.server.address) as other:
            assert other.describe(h).handle == h.handle
            np.testing.assert_array_equal(other.get(h), [1.0, 2.0])
            return other.call("echo", h).array

    np.testing.assert_array_equal(with_client(memory.server.address, use), [1.0, 2.0])


def test_the_end_of_a_block_deletes_without_a_timeout(memory):
    async def use(client):
        asked, run = [], client._threads.run

        async def record_timeout(work, dropped=None, timeout=None):
            asked.append(timeout)
            return await run(work, dropped, timeout)

        async with await client.put([1.0]):
            client._threads.run = record_timeout
        assert asked == [None]

    with_client(memory.server.address, use)
    assert memory.stored == {}


@pytest.mark.parametrize("method", ["put", "diff", "compiled"])
def test_an_array_that_came_too_late_is_deleted(memory, method):
    came, release = threading.Event(), threading.Event()

    async def use(client):
        kernel = await client.compile("echo", Array(1, "float64"))
        make = {"put": client.put, "diff": partial(client.diff, keep=True), "compiled": partial(kernel, keep=True)}
        lease = client._wrapped._sender.lease
        hold = lease.hold

        def late(*args):
            array = hold(*args)
            came.set()
            assert release.wait(20)
            return array

        lease.hold = late
        task = asyncio.create_task(make[method](np.ones(1)))
        assert await asyncio.to_thread(came.wait, 20)
        assert len(memory.stored) == 1
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        await cancel(task)
        assert memory.stored == {}

    with_client(memory.server.address, use)


def test_an_array_without_an_answer_is_located_and_deleted(memory):
    memory.info.limits.lease_seconds = 0.2

    async def use(client):
        stored, release = memory.hold_answers()
        task = asyncio.create_task(client.diff([1.0], keep=True))
        assert await asyncio.to_thread(stored.wait, 20)
        (handle,) = memory.stored
        await cancel(task)
        release.set()
        assert await asyncio.to_thread(memory.deleted.get, timeout=20) == [handle]
        assert await client.list() == []

    with_client(memory.server.address, use)
