"""Arrays on the mesh, and the results that stay there."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, NoReturn, ParamSpec, Self, TypeAlias, TypeVar

from shardcall._src.calls.result import Result
from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall.aio.threads import Threads
from shardcall.aio.wrapper import AsyncWrapper, awaited, awaited_as
from shardcall.client import Client
from shardcall_core.types.arrays import HasType
from shardcall_core.types.errors import ShardcallError

_Arguments = ParamSpec("_Arguments")
_Wrapped_co = TypeVar("_Wrapped_co", covariant=True)
_Item = TypeVar("_Item", bound=HasType)
Running: TypeAlias = Coroutine[Any, Any, Result[_Item]]
"""A call that is awaited."""


class AsyncRemoteArray(AsyncWrapper[RemoteArray], ArrayProperties):
    """A `shardcall.RemoteArray` whose `get`, `progress` and `delete` are awaited.

    ``async with`` deletes it at the block's end.

    It has no operators, since they could not be awaited; `AsyncClient.submit` computes with it. Two objects of the same
    array are equal.
    """

    get = awaited(RemoteArray.get)
    progress = awaited(RemoteArray.progress)
    delete = awaited(RemoteArray.delete)

    def __copy__(self) -> Self:
        return self  # it stands for one array as long as it lives

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __remote_array__(self) -> RemoteArray:
        return self._wrapped

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error_type: object, error: object, trace: object, /) -> None:
        with contextlib.suppress(ShardcallError):  # as for a `RemoteArray`
            await self._threads.run(self._wrapped.delete)  # after any number of calls

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncRemoteArray) and other._wrapped is self._wrapped

    def __hash__(self) -> int:
        return id(self._wrapped)

    def __bool__(self) -> bool:
        return True  # of any length: the values are on the mesh

    def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
        # Without it NumPy would make an array of one object.
        raise TypeError("the values of an AsyncRemoteArray are on the mesh; await its get()")


def delete_unseen(array: RemoteArray) -> None:
    """Deletes an array that no caller can reach; its lease does so later if the server cannot be reached."""
    with contextlib.suppress(ShardcallError):
        array.delete()


def running(
    method: Callable[Concatenate[_Wrapped_co, _Arguments], Result[Any]],
) -> Callable[Concatenate[AsyncWrapper[_Wrapped_co], _Arguments], Running[Any]]:
    """Returns an awaitable form of a method that runs a kernel; each result on the mesh is an `AsyncRemoteArray`."""
    return awaited_as(_with_kept, method, dropped=_delete_kept, only_with="keep")


def _with_kept(result: Result[Any], threads: Threads) -> Result[Any]:
    arrays = (AsyncRemoteArray(item, threads) if isinstance(item, RemoteArray) else item for item in result.arrays)
    return dataclasses.replace(result, arrays=tuple(arrays))


def _delete_kept(result: Result[Any]) -> None:
    for array in result.arrays:
        if isinstance(array, RemoteArray):
            delete_unseen(array)


@functools.wraps(Client.submit)
def submit(
    self: AsyncWrapper[Client], name: str, /, *operands: Any, **arguments: Any
) -> AsyncRemoteArray | tuple[AsyncRemoteArray, ...]:
    """Submits a call, as `shardcall.Client.submit`."""
    threads: Threads = self._threads
    results = self._wrapped.submit(name, *operands, **arguments)
    if isinstance(results, RemoteArray):
        return AsyncRemoteArray(results, threads)
    return tuple(AsyncRemoteArray(result, threads) for result in results)
