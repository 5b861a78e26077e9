"""The classes of results, which `make lint` checks with mypy."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, assert_type

from numpy.typing import NDArray

import shardcall as sc
from shardcall.aio import AsyncClient, AsyncRemoteArray


def check_methods(client: sc.Client, x: NDArray[Any], *, keep: bool) -> None:
    """Methods with several arguments, of one operand and of two, and `Client.call`."""
    assert_type(client.diff(x, axis=0, mesh=sc.Mesh(x=8)).array, NDArray[Any])
    assert_type(client.diff(x, axis=0, keep=True).array, sc.RemoteArray)
    assert_type(client.diff(x, keep=keep).array, NDArray[Any] | sc.RemoteArray)
    assert_type(client.sqrt(x).array, NDArray[Any])
    assert_type(client.sqrt(x, keep=True).array, sc.RemoteArray)
    assert_type(client.add(x, 1.0).array, NDArray[Any])
    assert_type(client.add(x, 1.0, keep=True).array, sc.RemoteArray)
    assert_type(client.call("diff", x, axis=0).array, NDArray[Any])
    assert_type(client.call("diff", x, keep=True).arrays, tuple[sc.RemoteArray, ...])
    assert_type(client.xp.sqrt(x), Any)


def check_compiled(kernel: sc.CompiledKernel, x: NDArray[Any]) -> None:
    """Calls of a compiled kernel."""
    assert_type(kernel(x).array, NDArray[Any])
    assert_type(kernel(x, keep=True).array, sc.RemoteArray)


async def check_awaited(client: AsyncClient, x: NDArray[Any]) -> None:
    """Methods of the asynchronous client."""
    assert_type((await client.diff(x)).array, NDArray[Any])
    assert_type((await client.diff(x, keep=True)).array, AsyncRemoteArray)
    assert_type((await client.call("diff", x, keep=True)).array, AsyncRemoteArray)


def check_arguments(client: sc.Client, pool: ThreadPoolExecutor, x: NDArray[Any]) -> None:
    """Methods as arguments of other functions."""
    assert_type(pool.map(client.diff, [x]), Iterator[sc.Result[NDArray[Any]]])
    assert_type(partial(client.diff, x)().array, NDArray[Any])


def check_mistakes(client: sc.Client, x: NDArray[Any]) -> None:
    """Arguments that do not exist, which checkers refuse: a comment that ignores nothing is an error."""
    client.diff(x, axs=0)  # type: ignore[call-overload]
    client.sqrt(x, speck="x")  # type: ignore[call-overload]
