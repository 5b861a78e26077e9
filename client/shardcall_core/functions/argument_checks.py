"""Checks that a call has the operands and the parameters of its function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from shardcall_core.call_error import CallError, Reason, did_you_mean, shorten
from shardcall_core.functions.signature import REQUIRED, OperandInfo, ParameterInfo, ParameterValue
from shardcall_core.layouts.layout import ArrayType, OperandTypes


class Callee(Protocol):
    """A function, or a kernel."""

    @property
    def name(self) -> str:
        """The name in calls."""

    @property
    def operands(self) -> tuple[OperandInfo, ...]:
        """The operands by position."""

    @property
    def parameters(self) -> tuple[ParameterInfo, ...]:
        """The static parameters."""


def without_trailing(operands: Sequence[ArrayType | None]) -> Sequence[ArrayType | None]:
    """Returns the operands without those left out at the end."""
    present = [i for i, operand in enumerate(operands) if operand is not None]
    return operands[: present[-1] + 1] if present else ()


def numbered(infos: Sequence[OperandInfo], count: int) -> tuple[OperandInfo, ...]:
    """Returns the operands of a call with ``count`` of them; a repeated one is numbered: ``layers[0]``, …."""
    if not infos or not infos[-1].repeated:
        return tuple(infos)
    *once, repeated = infos
    times = max(count - len(once), 0 if repeated.optional else 1)
    return (*once, *(replace(repeated, name=f"{repeated.name}[{i}]") for i in range(times)))


def check_operands(callee: Callee, requested: OperandTypes) -> tuple[ArrayType | None, ...]:
    """Returns the operands of a call, one for each of the kernel's; None for one left out.

    Raises:
        CallError: OPERAND_COUNT.
    """
    present = without_trailing(requested)
    infos = numbered(callee.operands, len(present))
    if len(present) > len(infos):
        raise CallError(
            Reason.OPERAND_COUNT,
            f"kernel {callee.name!r} takes {len(infos)} operands "
            f"({', '.join(info.name for info in infos)}) and got {len(present)}; leave out the rest",
            field="operands",
        )
    operands = tuple(present) + (None,) * (len(infos) - len(present))
    for info, operand in zip(infos, operands, strict=True):
        if operand is None and (info.repeated or not info.optional):
            raise CallError(
                Reason.OPERAND_COUNT,
                f"kernel {callee.name!r} needs operand {info.name!r}, which is None or was left out; give an array",
                field=info.name,
            )
    return operands


def check_parameters(callee: Callee, values: Mapping[str, ParameterValue]) -> dict[str, ParameterValue]:
    """Returns the parameters of a call by name, defaults filled in.

    Raises:
        CallError: for names that the kernel does not have, and required ones that are missing.
    """
    defaults = {info.name: info.default for info in callee.parameters}
    for name in values:
        if name not in defaults:
            raise CallError(
                Reason.UNKNOWN_PARAMETER,
                f"kernel {callee.name!r} has no parameter {shorten(name)!r}; {did_you_mean(name, defaults)}",
                field=shorten(name) or "parameters",
            )
    parameters = {**defaults, **values}
    for name, value in parameters.items():
        if value is REQUIRED:
            raise CallError(
                Reason.INVALID_PARAMETER,
                f"kernel {callee.name!r} needs parameter {name!r}, which was left out; give {name}=…",
                field=name,
            )
    return parameters  # type: ignore[return-value]  # REQUIRED is gone
