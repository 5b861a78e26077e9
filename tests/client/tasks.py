"""Task helpers for the tests of the asyncio client."""

import asyncio

import pytest


async def cancel(task):
    """Cancels a task and waits for its end."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
