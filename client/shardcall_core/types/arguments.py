"""Sorts the arguments of a caller into the operands, specs and parameters of a call."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardcall_core.functions.function import Function
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.types.errors import (
    InvalidOperandError,
    InvalidRequestError,
    OperandCountError,
    UnknownParameterError,
)
from shardcall_core.types.specs import SpecLike

_FIELD = re.compile(r"(?:operand |(?P<list>in_specs|out_specs)\[)(?P<index>\d{1,9})\]?")


def caller_name(kernel: str, field: str) -> str:
    """Returns the caller's name of a field of a request: ``lhs_spec`` for ``in_specs[0]``.

    Fields without such a name, and those of kernels that are not in the table, are returned unchanged.
    """
    function, match = FUNCTIONS.get(kernel), _FIELD.fullmatch(field)
    if function is None or match is None:
        return field
    names = getattr(function, match["list"] or "named_operands")
    index = int(match["index"])
    return (names[index] if index < len(names) else None) or field


def operand_name(kernel: str, index: int) -> str:
    """Returns the caller's name of an operand: ``lhs``, or ``operand 0`` of a kernel that is not in the table."""
    return FUNCTIONS[kernel].operand_name(index) if kernel in FUNCTIONS else f"operand {index}"


def similar_specs(kernel: str, keyword: str) -> list[str]:
    """Returns the spec keywords of a kernel that a general one, such as ``sharding``, stands for; else none."""
    function = FUNCTIONS[kernel]
    if keyword in ("spec", "in_spec", "specs", "in_specs", "sharding"):
        return [name for name in function.in_specs if name] or list(function.out_specs)
    return list(function.out_specs) if keyword in ("out_specs", "out_sharding") else []


def check_required(kernel: str, operands: Sequence[object]) -> None:
    """Checks that no operand is None that a kernel requires.

    Raises:
        OperandCountError: if one is; ``field`` is its name.
    """
    for info, operand in zip(FUNCTIONS[kernel].operands, operands, strict=False):
        if operand is None and not info.optional:
            raise OperandCountError(
                f"{info.name} is None, and {kernel} needs it; give an array or a number", field=info.name
            )


_KEYWORDS_OF_OTHERS = {
    "keep": "the results of submit always stay on the mesh, and plan and compile have none; leave it out",
    "out": "results are new arrays; leave it out, and use what the call returns",
}
"""Keywords that callers know from other methods or from NumPy."""


def _check_keywords(function: Function, keywords: Mapping[str, Any]) -> None:
    for name, advice in _KEYWORDS_OF_OTHERS.items():
        if name in keywords and name not in function.defaults:
            raise UnknownParameterError(
                f"{name}= was given to a call of {function.name!r}; {advice}", field=name, reason="UNKNOWN_PARAMETER"
            )


class BoundArguments(NamedTuple):
    """The parts of a call as the protocol has them; operands that are None are left out."""

    operands: tuple[Any, ...]
    in_specs: Sequence[SpecLike | None] | None
    out_specs: Sequence[SpecLike | None] | None
    parameters: dict[str, Any]


def bind(
    kernel: str,
    operands: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    in_specs: Sequence[SpecLike | None] | None = None,
    out_specs: Sequence[SpecLike | None] | None = None,
) -> BoundArguments:
    """Sorts keywords into operands, specs and parameters.

    Raises:
        InvalidOperandError: if an operand is passed both by position and by name.
        InvalidRequestError: if a spec is passed both by name and in ``in_specs`` or ``out_specs``.
        UnknownParameterError: for ``keep=`` or ``out=`` of a kernel in the table.
    """
    parameters, function = dict(keywords), FUNCTIONS.get(kernel)
    if function is not None and not keywords.keys() <= function.defaults.keys():
        operands = _bind_operands(function, operands, parameters)
        _check_keywords(function, parameters)
        in_specs = _bind_specs("in_specs", function.in_specs, in_specs, parameters)
        out_specs = _bind_specs("out_specs", function.out_specs, out_specs, parameters)
    return BoundArguments(_trim(operands), in_specs, out_specs, parameters)


def _bind_operands(function: Function, by_position: Sequence[Any], keywords: dict[str, Any]) -> Sequence[Any]:
    names = function.named_operands
    operands = [*by_position, *[None] * (len(names) - len(by_position))]
    for i, name in enumerate(names):
        by_name = keywords.pop(name, None)
        if by_name is None:
            continue
        if operands[i] is not None:
            raise InvalidOperandError(
                f"operand {name!r} of kernel {function.name!r} is given by position and by name; give it once",
                field=name,
            )
        operands[i] = by_name
    return operands


def _bind_specs(
    field: str,
    names: tuple[str | None, ...],
    specs: Sequence[SpecLike | None] | None,
    keywords: dict[str, Any],
) -> Sequence[SpecLike | None] | None:
    by_name = [None if name is None else keywords.pop(name, None) for name in names]
    if all(spec is None for spec in by_name):
        return specs
    if specs is not None:
        used = [name for name, spec in zip(names, by_name, strict=True) if spec is not None]
        raise InvalidRequestError(f"{used[0]} and {field} are both given; give one of them", field=field)
    return _trim(by_name)


def _trim(items: Sequence[Any]) -> tuple[Any, ...]:
    end = len(items)
    while end and items[end - 1] is None:
        end -= 1
    return tuple(items[:end])
