"""A kernel compiled ahead of time."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from shardcall._src.calls.result import Result
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.plan import Plan
from shardcall._src.device_arrays.remote_array import find_remote_array
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall.aio.remote_array import running
from shardcall.aio.threads import Threads
from shardcall.aio.wrapper import AsyncWrapper, awaited
from shardcall.compiled import CompiledKernel
from shardcall_core.types.arrays import Array


@functools.wraps(CompiledKernel.__call__)
def _call(
    kernel: CompiledKernel,
    /,
    *operands: OperandLike,
    keep: bool = False,
    reshard: bool | None = None,
    timeout: float | None = DEFAULT_TIMEOUT_S,
    **named: OperandLike,
) -> Result[Any]:
    resolved = (operand if (array := find_remote_array(operand)) is None else array for operand in operands)
    return kernel(*resolved, keep=keep, reshard=reshard, timeout=timeout, **named)


class AsyncCompiledKernel(AsyncWrapper[CompiledKernel]):
    """A `shardcall.CompiledKernel` whose calls and `as_text` are awaited.

    Attributes:
        plan: the plan of every call.
    """

    def __init__(self, wrapped: CompiledKernel, threads: Threads) -> None:
        super().__init__(wrapped, threads)
        self.plan: Plan = wrapped.plan

    __call__ = running(_call)
    as_text = awaited(CompiledKernel.as_text)

    def explain(self) -> str:
        """Returns the plan as text, with the reason for a compilation if there was one."""
        return self._wrapped.explain()

    @property
    def key(self) -> Mapping[str, str]:
        """The labelled parts of the program's key in the server's cache."""
        return self._wrapped.key

    @property
    def cache_hit(self) -> bool:
        """True if the program was in the server's cache when this kernel was compiled."""
        return self._wrapped.cache_hit

    @property
    def operands(self) -> tuple[Array, ...]:
        """The types of the arrays that a call takes."""
        return self._wrapped.operands
