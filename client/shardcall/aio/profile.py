"""Profiles of a server's devices, for ``async with``."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall._src.services.profile import Profile
from shardcall.aio.threads import Threads
from shardcall.aio.wrapper import AsyncWrapper
from shardcall.client import Client
from shardcall_core.types.tracebacks import shortened


class AsyncProfile(AsyncWrapper[Profile]):
    """A `shardcall._src.services.profile.Profile` for ``async with``."""

    @property
    def path(self) -> Path | None:
        """The folder of the files; None before the end of the block."""
        return self._wrapped.path

    @property
    def is_truncated(self) -> bool:
        """True if the server ended the recording before the end of the block, since it had too many events."""
        return self._wrapped.is_truncated

    @shortened
    async def __aenter__(self) -> Self:
        await self._threads.run(self._wrapped.start, dropped=lambda _: self._wrapped.discard())
        return self

    @shortened
    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._threads.run(functools.partial(self._wrapped.__exit__, error_type, error, trace))


@functools.wraps(Client.profile)
def profile(
    self: AsyncWrapper[Client],
    directory: str | os.PathLike[str],
    *,
    max_seconds: float = 0.0,
    timeout: float | None = DEFAULT_TIMEOUT_S,
) -> AsyncProfile:
    """Returns a profile for ``async with``, as `shardcall.Client.profile`."""
    threads: Threads = self._threads  # a method of theirs
    wrapped = self._wrapped.profile(directory, max_seconds=max_seconds, timeout=timeout)
    return AsyncProfile(wrapped, threads)
