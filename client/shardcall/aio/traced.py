"""Functions of the caller that run as one program, their calls awaited."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.traced.traced_function import TracedFunction
from shardcall.aio.remote_array import AsyncRemoteArray
from shardcall.aio.threads import Threads
from shardcall.aio.wrapper import AsyncWrapper, awaited, awaited_as
from shardcall.client import Client
from shardcall_core.types.pytrees import flatten


def _asynchronous(tree: Any, threads: Threads) -> Any:
    """Returns a result with its arrays as those of an asynchronous client."""
    leaves, structure = flatten(tree)
    return structure.with_leaves(
        AsyncRemoteArray(leaf, threads) if isinstance(leaf, RemoteArray) else leaf for leaf in leaves
    )


def _drop(tree: Any) -> None:
    """Drops a result that nobody got; the lease deletes its arrays, but for those that are arrays of the caller."""


def _awaited_alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a form of a method that is awaited, except in a traced function, where the call becomes a part of it."""
    run = awaited_as(_asynchronous, method, _drop)

    @functools.wraps(method)
    def call(self: AsyncTracedFunction, /, *args: Any, **kwargs: Any) -> Any:
        if self._wrapped._active.trace is not None:
            return method(self._wrapped, *args, **kwargs)
        return run(self, *args, **kwargs)

    return call


class AsyncTracedFunction(AsyncWrapper[TracedFunction]):
    """A `shardcall.TracedFunction` whose methods are awaited, except in a traced function; made by `AsyncClient.jit`.

    The function itself is traced in a thread, and is no coroutine.
    """

    def __init__(self, wrapped: TracedFunction, threads: Threads) -> None:
        super().__init__(wrapped, threads)
        functools.update_wrapper(self, wrapped, updated=())

    __call__ = _awaited_alone(TracedFunction.__call__)
    repeat = _awaited_alone(TracedFunction.repeat)
    compare = awaited(TracedFunction.compare)
    trace = awaited(TracedFunction.trace)
    plan = awaited(TracedFunction.plan)

    def traced_function(self) -> Callable[..., Any]:
        """Returns the function."""
        return self._wrapped.traced_function()

    def __get__(self, instance: Any, owner: type | None = None) -> AsyncTracedFunction:
        return self if instance is None else AsyncTracedFunction(self._wrapped.__get__(instance, owner), self._threads)


def tracing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a form of a method of the client that makes an `AsyncTracedFunction`, or a decorator that does."""

    @functools.wraps(method)
    def make(self: AsyncWrapper[Client], /, *args: Any, **kwargs: Any) -> Any:
        arguments = (item._wrapped if isinstance(item, AsyncTracedFunction) else item for item in args)
        result = method(self._wrapped, *arguments, **kwargs)
        if isinstance(result, TracedFunction):
            return AsyncTracedFunction(result, self._threads)
        return lambda function: AsyncTracedFunction(result(function), self._threads)

    return make


def namespace_of(client: AsyncWrapper[Client]) -> Any:
    """Returns the functions of arrays, for a function that is traced.

    Raises:
        RuntimeError: outside of one, where they would block the event loop.
    """
    if client._wrapped._tracer.active.trace is None:
        raise RuntimeError(
            "xp of an asynchronous client is for functions that its jit traces, and would block the event loop outside "
            "of them; write await client.jit(function)(...) with client.xp in the function, or await client.call(...)"
        )
    return client._wrapped.xp


def publishing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a form of a method of the client that is awaited, and takes an `AsyncTracedFunction`, too."""
    publish = awaited(method)

    @functools.wraps(method)
    async def run(self: AsyncWrapper[Client], function: Any, /, *args: Any, **kwargs: Any) -> Any:
        traced = function._wrapped if isinstance(function, AsyncTracedFunction) else function
        return await publish(self, traced, *args, **kwargs)

    return run
