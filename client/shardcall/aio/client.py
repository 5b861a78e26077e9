"""A connection to a server, its methods awaited."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Self

from shardcall._src.calls.call_trace import CallTrace
from shardcall._src.device_arrays.array_table import ArrayTable
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.services.implicit_gets import Statistics
from shardcall.aio.compiled import AsyncCompiledKernel
from shardcall.aio.profile import profile
from shardcall.aio.remote_array import AsyncRemoteArray, Running, delete_unseen, running, submit
from shardcall.aio.threads import Threads
from shardcall.aio.traced import namespace_of, publishing, tracing
from shardcall.aio.wrapper import AsyncWrapper, awaited, awaited_as
from shardcall.client import Client
from shardcall.methods import KernelMethods
from shardcall.methods.kernel_caller import kernel_method
from shardcall_core.types.errors import ShardcallError


def _find_unseen(client: Client) -> None:
    """Finds arrays of calls whose answers were lost; the client's lease then deletes them."""
    with contextlib.suppress(ShardcallError):
        client.list()  # whose objects are dropped immediately


def _wrapped_table(table: ArrayTable[RemoteArray], threads: Threads) -> ArrayTable[AsyncRemoteArray]:
    return ArrayTable([AsyncRemoteArray(array, threads) for array in table], table.entries)


class AsyncClient(AsyncWrapper[Client], KernelMethods[Running[AsyncRemoteArray]]):
    """A `shardcall.Client` whose methods are awaited, `profile` by ``async with``; made by `connect` or `local`.

    `submit` is not awaited; it blocks the event loop where that of `shardcall.Client` waits. `jit` and the
    transformations of functions are not awaited either, but calls of the functions that they return are; `xp` is for
    use in such functions. Any number of tasks may use a client at once, in several event loops.
    """

    def __init__(self, wrapped: Client, threads: Threads) -> None:
        super().__init__(wrapped, threads)
        wrapped._submitter.is_recording = False  # the first run of a program would block the event loop
        threads.search_with(partial(_find_unseen, wrapped))

    call = kernel_method(running(Client.call))
    submit = submit
    synchronize = awaited(Client.synchronize)
    plan = awaited(Client.plan)
    compile = awaited_as(AsyncCompiledKernel, Client.compile)
    put = awaited_as(AsyncRemoteArray, Client.put, dropped=delete_unseen)
    name = awaited(Client.name)
    open = awaited_as(AsyncRemoteArray, Client.open)
    share = awaited(Client.share)
    unshare = awaited(Client.unshare)
    get = awaited(Client.get)
    describe = awaited_as(AsyncRemoteArray, Client.describe)
    delete = awaited(Client.delete)
    list = awaited_as(_wrapped_table, Client.list)
    save = awaited(Client.save)
    load = awaited_as(AsyncRemoteArray, Client.load, dropped=delete_unseen)
    files = awaited(Client.files)
    remove_file = awaited(Client.remove_file)
    save_checkpoint = awaited(Client.save_checkpoint)
    empty = awaited(Client.empty)
    kernels = awaited(Client.kernels)
    kernel = awaited(Client.kernel)
    server_info = awaited(Client.server_info)
    usage = awaited(Client.usage)
    profile = profile
    publish = publishing(Client.publish)
    unpublish = awaited(Client.unpublish)
    models = awaited(Client.models)
    jit = tracing(Client.jit)
    value_and_grad = tracing(Client.value_and_grad)
    grad = tracing(Client.grad)
    checkpoint = tracing(Client.checkpoint)
    vmap = tracing(Client.vmap)
    xp = property(namespace_of, doc=Client.xp.__doc__)

    @property
    def address(self) -> str:
        """The address of the server."""
        return self._wrapped.address

    def statistics(self) -> Statistics:
        """Returns the counts of this client since it connected.

        Example:
            >>> statistics = client.statistics()
        """
        return self._wrapped.statistics()

    def trace_calls(self) -> CallTrace:
        """Returns what the latest calls that were recorded ran as, oldest first; ``print`` shows a table.

        Calls that depend on each other are recorded and sent as one program (docs/pending_arrays.md).

        Example:
            >>> values = (client.put(np.arange(4.0)) * 2 + 1).get()
            >>> trace = client.trace_calls()
        """
        return self._wrapped.trace_calls()

    def _function_names(self) -> Iterable[str]:
        return self._wrapped._function_names()

    def _kernel_names(self) -> Iterable[str]:
        return self._wrapped._kernel_names()  # may block the loop once, for a second at most

    async def close(self) -> None:
        """Cancels the calls in flight and closes the client, as `shardcall.Client.close`; may be called again."""
        await self._threads.close(self._wrapped.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._threads.is_closed:
                await self._threads.run(self._wrapped._synchronize_at_end)
        finally:
            await self.close()
