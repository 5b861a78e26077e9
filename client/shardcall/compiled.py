"""A kernel compiled ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NoReturn

import numpy as np

from shardcall.arrays import Array, NDArray, type_of
from shardcall.calls import Call
from shardcall.errors import InvalidOperandError, OperandTypeError
from shardcall.operands import OperandLike, as_operand
from shardcall.plan import Plan
from shardcall.remote_array import RemoteArray, check_there
from shardcall.result import Result
from shardcall.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall.transfer.upload import Value

Runner = Callable[[tuple[Value, ...], float | None, bool], Result]


class CompiledKernel:
    """A kernel compiled for operands of fixed types; call it with arrays of exactly those.

    Operands that were given with their values when it was compiled, such as ``prepend=0.0``, are bound: calls
    take the others only, in the kernel's order.

    Attributes:
        plan: what a call does.
    """

    def __init__(self, call: Call, plan: Plan, print_text: Callable[[float | None], str], run: Runner) -> None:
        self.plan = plan
        self._call = call
        self._print_text = print_text
        self._run = run
        self._open = [(i, call.names[i], item) for i, item in enumerate(call.operands) if isinstance(item, Array)]
        self._values: list[Value] = [None if isinstance(item, Array) else item for item in call.operands]

    @property
    def key(self) -> Mapping[str, str]:
        """The labelled parts of the key that the program is kept by."""
        return self.plan.key

    @property
    def cache_hit(self) -> bool:
        """Whether the program was there when this kernel was compiled."""
        return self.plan.cache_hit

    @property
    def operands(self) -> tuple[Array, ...]:
        """The types of the arrays that a call takes."""
        return tuple(kind for _, _, kind in self._open)

    def as_text(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> str:
        """Asks the server for the compiled program as the compiler prints it; it may be megabytes.

        Args:
            timeout: seconds for the answer; None for the server's maximum.

        Raises:
            ShardcallError: as `Client.compile`; a program that was evicted is compiled again.
        """
        return self._print_text(timeout)

    def explain(self) -> str:
        """Returns the plan, and why the program had to be compiled if it had to, as text."""
        return str(self.plan)

    def __call__(
        self,
        /,
        *operands: OperandLike,
        keep: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT_S,
        **named: OperandLike,
    ) -> Result:
        """Runs the kernel.

        Args:
            operands: arrays of exactly the types that it was compiled for, without those that are bound.
            keep: leave the results on the mesh.
            timeout: seconds for the whole call; None for the server's maximum.
            named: refused; operands go by position.

        Returns:
            As `Client.call`.

        Raises:
            InvalidOperandError: for another number of arrays, or another shape.
            OperandTypeError: for another element type.
        """
        if named or len(operands) != len(self._open):
            raise self._refusal(len(operands), named)
        values = list(self._values)
        for (index, name, expected), value in zip(self._open, operands, strict=True):
            values[index] = _checked(name, value, expected)
        return self._run(tuple(values), timeout, keep)

    def _refusal(self, count: int, named: Iterable[str]) -> InvalidOperandError:
        """The error that says which operands a call takes, and which it does not since the kernel holds them."""
        kinds = list(zip(self._call.names, self._call.types, self._call.operands, strict=True))
        free = [f"{name} {kind}" for name, kind, item in kinds if isinstance(item, Array)]
        bound = [f"{name} {kind}" for name, kind, item in kinds if isinstance(item, np.ndarray | RemoteArray)]
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

    def __repr__(self) -> str:
        types = ", ".join(map(str, self.operands))
        return f"<CompiledKernel {self.plan.kernel}({types}) by {self.plan.strategy!r}>"


def _count(arrays: int) -> str:
    return "1 array" if arrays == 1 else f"{arrays or 'no'} arrays"


def _checked(field: str, value: OperandLike, expected: Array) -> NDArray | RemoteArray:
    if isinstance(value, RemoteArray):
        check_there(value, field)
    array = value if isinstance(value, RemoteArray) else as_operand(value, field)
    given = type_of(array)
    if given.shape != expected.shape:
        raise InvalidOperandError(
            f"{field} has shape {given.shape} and the kernel was compiled for {expected.shape}; "
            "compile it for this shape, or use Client.call",
            field=field,
        )
    if given.dtype != expected.dtype:
        raise OperandTypeError(
            f"{field} has element type {given.dtype} and the kernel was compiled for {expected.dtype}; "
            f"give array.astype({expected.dtype.name!r}), or compile it for {given.dtype}",
            field=field,
        )
    return array
