"""A kernel compiled ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, NoReturn, overload

import numpy as np

from shardcall._src.calls.call_request import CallRequest
from shardcall._src.calls.result import Result
from shardcall._src.device_arrays.array_version import ArrayVersion
from shardcall._src.device_arrays.operands import OperandLike, as_operand
from shardcall._src.device_arrays.plan import Plan
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall._src.transfer.upload import Value
from shardcall.v1 import kernel_pb2
from shardcall_core.placements.resharding import Transfer, find_transfer
from shardcall_core.types import mesh, specs
from shardcall_core.types.arrays import Array, NDArray, type_of
from shardcall_core.types.errors import InvalidOperandError, OperandTypeError, ShardingError
from shardcall_core.types.tracebacks import shortened

Runner = Callable[[CallRequest, tuple[Value, ...], float | None, bool, bool], Result[Any]]
"""Runs a call: its message, its operands, ``timeout``, ``keep``, ``reshard``."""


@shortened
class CompiledKernel:
    """A kernel compiled for operands of fixed types; call it with arrays of exactly those.

    Operands that had values when it was compiled, such as ``prepend=0.0``, are bound: calls take the others only, in
    the kernel's order.

    Attributes:
        plan: the plan of every call.
    """

    def __init__(
        self,
        call: CallRequest,
        plan: Plan,
        print_text: Callable[[float | None], str],
        runner: Runner,
        *,
        reshard: bool = False,
    ) -> None:
        self.plan = plan
        self._call = call
        self._print_text = print_text
        self._runner = runner
        self._reshard = reshard
        if not reshard and plan.transfers:
            raise _transfer_refused(call.names[plan.transfers[0].operand], plan.transfers[0], bound=True)
        self._open = [(i, call.names[i], item) for i, item in enumerate(call.operands) if isinstance(item, Array)]
        self._values: list[Value] = [None if isinstance(item, Array) else item for item in call.operands]

    @property
    def key(self) -> Mapping[str, str]:
        """The labelled parts of the program's key in the server's cache."""
        return self.plan.key

    @property
    def cache_hit(self) -> bool:
        """True if the program was in the server's cache when this kernel was compiled."""
        return self.plan.cache_hit

    @property
    def operands(self) -> tuple[Array, ...]:
        """The types of the arrays that a call takes."""
        return tuple(operand_type for _, _, operand_type in self._open)

    def as_text(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> str:
        """Returns the compiled program as the compiler prints it, which may be megabytes.

        Args:
            timeout: seconds for the answer; None for the server's maximum.

        Raises:
            ShardcallError: as `Client.compile`; a program that was evicted is compiled again.
        """
        return self._print_text(timeout)

    def explain(self) -> str:
        """Returns the plan as text, with the reason for a compilation if there was one."""
        return str(self.plan)

    @overload
    def __call__(
        self, /, *operands: OperandLike, keep: Literal[True], reshard: bool | None = ..., timeout: float | None = ...
    ) -> Result[RemoteArray]: ...
    @overload
    def __call__(
        self,
        /,
        *operands: OperandLike,
        keep: Literal[False] = ...,
        reshard: bool | None = ...,
        timeout: float | None = ...,
    ) -> Result[NDArray]: ...
    @overload
    def __call__(
        self, /, *operands: OperandLike, keep: bool, reshard: bool | None = ..., timeout: float | None = ...
    ) -> Result[Any]: ...
    def __call__(
        self,
        /,
        *operands: OperandLike,
        keep: bool = False,
        reshard: bool | None = None,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        **named: OperandLike,
    ) -> Result[Any]:
        """Runs the kernel.

        Args:
            operands: arrays of exactly the types that it was compiled for, without those that are bound.
            keep: leave the results on the mesh.
            reshard: move an array on the mesh whose placement differs from the compiled one, which
                ``result.plan.transfers`` reports; False refuses it. None for the value passed to `Client.compile`.
                Arrays of this process are always placed.
            timeout: seconds for the complete call; None for the server's maximum.
            named: refused; operands go by position.

        Returns:
            As `Client.call`.

        Raises:
            InvalidOperandError: for another number of arrays, or another shape.
            OperandTypeError: for another element type.
            ShardingError: for an array on the mesh with another spec, other devices or another order of them, unless
                ``reshard`` allows to move it.
        """
        if named or len(operands) != len(self._open):
            raise self._refusal(len(operands), named)
        may_move = self._reshard if reshard is None else reshard
        values = list(self._values)
        for (index, name, expected), value in zip(self._open, operands, strict=True):
            array = values[index] = _checked(name, value, expected)
            if not may_move and (transfer := self._transfer(index, array)) is not None:
                raise _transfer_refused(name, transfer)
        on_mesh = any(isinstance(value, ArrayVersion) for value in values)
        return self._runner(self._pinned if on_mesh else self._call, tuple(values), timeout, keep, may_move)

    def _transfer(self, index: int, array: NDArray | ArrayVersion) -> Transfer | None:
        """Returns the transfer of an array to the placement that the program takes; None if it is there."""
        taken = self.plan.operands[index] if index < len(self.plan.operands) else None
        if not isinstance(array, ArrayVersion) or taken is None:
            return None
        placed = array.settled()
        return find_transfer(index, placed.mesh, placed.placement, self.plan.mesh, taken)

    @cached_property
    def _pinned(self) -> CallRequest:
        """The call with the mesh and the specs that it was compiled for, which arrays on the mesh do not change."""
        message = kernel_pb2.KernelCall()
        message.CopyFrom(self._call.message)
        message.mesh.CopyFrom(mesh.to_proto(self.plan.mesh))
        del message.in_specs[:]
        message.in_specs.extend(specs.to_proto(None if o is None else o.spec) for o in self.plan.operands)
        return replace(self._call, message=message)

    def _refusal(self, count: int, named: Iterable[str]) -> InvalidOperandError:
        """Returns the error that names the operands of a call, and those that are bound."""
        operands = list(zip(self._call.names, self._call.types, self._call.operands, strict=True))
        free = [f"{name} {operand_type}" for name, operand_type, item in operands if isinstance(item, Array)]
        bound = [
            f"{name} {operand_type}"
            for name, operand_type, item in operands
            if isinstance(item, np.ndarray | ArrayVersion)
        ]
        takes = ", ".join([_count(len(free)), *free])
        got = " and ".join([_count(count), *(f"{name}=" for name in named)])
        held = f"bound by value when it was compiled: {', '.join(bound)}; " if bound else ""
        return InvalidOperandError(
            f"this compiled {self._call.message.kernel} takes by position {takes}; it got {got}; {held}"
            "to give an array with each call, compile with its type in its place: shardcall.Array(shape, dtype)",
            field="operands",
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a compiled kernel belongs to its client, and that to its process, and is neither pickled nor copied; "
            "connect again in the other one and compile it there, which finds the server's program"
        )

    def _repr_html_(self) -> str:
        """Returns the plan for a notebook."""
        return self.plan._repr_html_()

    def __repr__(self) -> str:
        types = ", ".join(map(str, self.operands))
        return f"<CompiledKernel {self.plan.kernel}({types}) by {self.plan.strategy!r}>"


def _transfer_refused(name: str, transfer: Transfer, *, bound: bool = False) -> ShardingError:
    where = f"mesh={transfer.to_mesh.short}, out_spec={transfer.to_spec}"
    allow = "compile with reshard=True" if bound else "call with reshard=True"
    return ShardingError(
        f"{name} is {transfer.type} placed as {transfer.from_spec} on {transfer.from_mesh.short}, and the kernel was "
        f"compiled for {transfer.to_spec} on {transfer.to_mesh.short}; place it so first, client.reshard(array, "
        f"{where}, keep=True).array, or {allow}, which moves {transfer.received_bytes:,} bytes each time",
        reason="TRANSFER_REQUIRED",
        field=name,
    )


def _count(arrays: int) -> str:
    return "1 array" if arrays == 1 else f"{arrays or 'no'} arrays"


def _checked(field: str, value: OperandLike, expected: Array) -> NDArray | ArrayVersion:
    array = value._version if isinstance(value, RemoteArray) else as_operand(value, field)
    if isinstance(array, ArrayVersion):
        array.check_there(field)
    actual = type_of(array)
    if actual.shape != expected.shape:
        raise InvalidOperandError(
            f"{field} has shape {actual.shape} and the kernel was compiled for {expected.shape}; "
            "compile it for this shape, or use Client.call",
            field=field,
        )
    if actual.dtype != expected.dtype:
        raise OperandTypeError(
            f"{field} has element type {actual.dtype} and the kernel was compiled for {expected.dtype}; "
            f"give array.astype({expected.dtype.name!r}), or compile it for {actual.dtype}",
            field=field,
        )
    return array
