"""The call slot of an item of a call stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from shardcall_server.frontend.rpc.admission import Slots
from shardcall_server.frontend.rpc.server_call import ServerCall


class ItemSlot:
    """The call slot of an item, during the body; a context manager.

    Args:
        slots: the call slots.
        call: the item's call.
        reserve: returns the wait until as many bytes of results may be computed; None if they may now.
    """

    def __init__(self, slots: Slots, call: ServerCall, reserve: Callable[[int], Awaitable[None] | None]) -> None:
        self._slots = slots
        self._call = call
        self._reserve = reserve
        self._is_held = False

    async def __aenter__(self) -> Self:
        await self._slots.wait(self._call, is_streamed=True)
        self._is_held = True
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._is_held:
            self._slots.release(self._call)

    async def reserve(self, nbytes: int) -> None:
        """Waits until as many bytes of results may be computed.

        Raises:
            CallError: the deadline passed or the caller left.
        """
        if (reserved := self._reserve(nbytes)) is not None:
            # Other clients of the principal need it while this one does not read.
            self._is_held = False
            self._slots.release(self._call)
            await reserved
            await self._slots.wait(self._call, is_streamed=True)
            self._is_held = True
