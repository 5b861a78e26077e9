"""Wrappers that make the methods of a synchronous class awaitable."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from shardcall.aio.threads import Threads
from shardcall_core.types.tracebacks import shortened

_Arguments = ParamSpec("_Arguments")
_Wrapped_co = TypeVar("_Wrapped_co", covariant=True)
_Value = TypeVar("_Value")
_Converted = TypeVar("_Converted")


class AsyncWrapper(Generic[_Wrapped_co]):
    """A synchronous object, and the threads in which its methods run."""

    def __init__(self, wrapped: _Wrapped_co, threads: Threads) -> None:
        self._wrapped = wrapped
        self._threads = threads

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self._wrapped.__reduce__()  # which raises an error that says what to do

    def __repr__(self) -> str:
        return repr(self._wrapped).replace("<", "<Async", 1)

    def _repr_html_(self) -> str:
        return self._wrapped._repr_html_()  # type: ignore[attr-defined,no-any-return]  # of all that are wrapped


def awaited(
    method: Callable[Concatenate[_Wrapped_co, _Arguments], _Value],
) -> Callable[Concatenate[AsyncWrapper[_Wrapped_co], _Arguments], Coroutine[Any, Any, _Value]]:
    """Returns an awaitable form of a method, with its signature and docstring."""
    return awaited_as(lambda value, _: value, method)


def awaited_as(
    convert: Callable[[_Value, Threads], _Converted],
    method: Callable[Concatenate[_Wrapped_co, _Arguments], _Value],
    dropped: Callable[[_Value], object] | None = None,
    *,
    only_with: str = "",
) -> Callable[Concatenate[AsyncWrapper[_Wrapped_co], _Arguments], Coroutine[Any, Any, _Converted]]:
    """Returns an awaitable form of a method, with its signature and docstring.

    Args:
        convert: converts the value of the synchronous method.
        method: the synchronous method.
        dropped: as for `Threads.run`.
        only_with: the keyword without which ``dropped`` is not called; empty for always.
    """
    options = inspect.signature(method).parameters
    usual = options["timeout"].default if "timeout" in options else None

    @functools.wraps(method)
    @shortened
    async def run(
        self: AsyncWrapper[_Wrapped_co], /, *args: _Arguments.args, **keywords: _Arguments.kwargs
    ) -> _Converted:
        drop = dropped if not only_with or keywords.get(only_with) else None
        work = functools.partial(method, self._wrapped, *args, **keywords)
        value = await self._threads.run(work, drop, keywords.get("timeout", usual))
        return convert(value, self._threads)

    return run
