"""Helpers for the tests of the asyncio client."""

import asyncio

import pytest

from shardcall import aio


def with_client(address, use):
    """Returns what a coroutine function returns of a client of a server."""

    async def run():
        async with aio.connect(address) as client:
            return await use(client)

    return asyncio.run(run())


async def cancel(task):
    """Cancels a task and waits for its end."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
