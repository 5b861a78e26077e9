"""The threads of the client for asyncio, without a server."""

import asyncio
import contextvars
import threading
import time
from functools import partial

import pytest
from client.tasks import cancel

import shardcall
from shardcall._src.rpc.deadline import deadline_after
from shardcall.aio import wrapper
from shardcall.aio.threads import Threads


def in_pool(use, max_threads=8):
    """Runs a coroutine function of some threads, which are ended."""

    async def run():
        pool = Threads(max_threads=max_threads)
        try:
            return await use(pool)
        finally:
            await pool.close(lambda: None)

    return asyncio.run(run())


def test_context_variables_are_those_of_the_caller():
    name = contextvars.ContextVar("name", default="nobody's")

    async def use(pool):
        name.set("mine")
        return await pool.run(name.get)

    assert in_pool(use) == "mine"


def test_work_that_waits_for_a_thread_is_never_begun_when_it_is_cancelled():
    release, begun = threading.Event(), []

    async def use(pool):
        busy = [asyncio.create_task(pool.run(lambda: release.wait(20))) for _ in range(2)]
        waiting = asyncio.create_task(pool.run(lambda: begun.append(1)))
        await asyncio.sleep(0)
        await cancel(waiting)
        release.set()
        assert all(await asyncio.gather(*busy))

    in_pool(use, 2)
    assert not begun


def test_a_late_value_is_released():
    began, release, dropped = threading.Event(), threading.Event(), []

    def work():
        began.set()
        release.wait(20)
        return "value"

    async def use(pool):
        task = asyncio.create_task(pool.run(work, dropped.append))
        await asyncio.to_thread(began.wait, 20)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # impatience changes nothing
        await asyncio.sleep(0)
        assert not task.done()
        release.set()
        await cancel(task)

    in_pool(use)
    assert dropped == ["value"]


def test_released_values_do_not_wait_behind_calls():
    began, end, end_next, dropped = threading.Event(), threading.Event(), threading.Event(), []

    def work():
        began.set()
        return end.wait(20)

    async def use(pool):
        task = asyncio.create_task(pool.run(work, dropped.append))
        await asyncio.to_thread(began.wait, 20)
        following = asyncio.create_task(pool.run(lambda: end_next.wait(20)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        end.set()
        await cancel(task)
        assert dropped == [True]
        assert not following.done()
        end_next.set()
        assert await following

    in_pool(use, 1)


def test_a_timeout_left_out_holds_for_the_wait_too():
    class Waiting:
        def rest(self, release, *, timeout=0.2):
            return release.wait(20)

    async def use(pool):
        release = threading.Event()
        rest = partial(wrapper.awaited(Waiting.rest), wrapper.AsyncWrapper(Waiting(), pool))
        first = asyncio.create_task(rest(release, timeout=20))
        await asyncio.sleep(0)
        with pytest.raises(shardcall.DeadlineExceededError):
            await rest(release)
        release.set()
        assert await first

    in_pool(use, 1)


def test_the_wait_for_a_thread_counts():
    async def use(pool):
        release = threading.Event()
        taken = [asyncio.create_task(pool.run(lambda: release.wait(20))) for _ in range(2)]
        late = asyncio.create_task(pool.run(lambda: deadline_after(100.0, 0.0), timeout=100.0))
        await asyncio.to_thread(lambda: None)
        asked = time.monotonic()
        release.set()
        value = await late
        await asyncio.gather(*taken)
        assert value.began_at <= asked

    in_pool(use, 2)
