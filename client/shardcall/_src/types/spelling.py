"""From the keywords that a caller writes to the operands, specs and parameters that a call holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shardcall._src.types.errors import InvalidOperandError, InvalidRequestError, OperandCountError
from shardcall._src.types.specs import SpecLike
from shardcall._src.types.spellings import SPELLINGS, Spelling

_FIELD = re.compile(r"(?:operand |(?P<list>in_specs|out_specs)\[)(?P<index>\d{1,9})\]?")


def caller_name(kernel: str, field: str) -> str:
    """Returns what a kernel's caller calls a field of the wire: ``lhs_spec`` for ``in_specs[0]``.

    Fields that have no such name, and those of kernels that are not here, are returned as they are.
    """
    spelling, match = SPELLINGS.get(kernel), _FIELD.fullmatch(field)
    if spelling is None or match is None:
        return field
    names = getattr(spelling, match["list"] or "operands")
    index = int(match["index"])
    return (names[index] if index < len(names) else None) or field


def operand_name(kernel: str, index: int) -> str:
    """Returns what a kernel's caller calls an operand: ``lhs``, or ``operand 0`` where it has no such name."""
    spelling = SPELLINGS.get(kernel)
    return spelling.operands[index] if spelling and index < len(spelling.operands) else f"operand {index}"


def spec_names(kernel: str) -> set[str]:
    """Returns the keywords of the specs of a kernel's operands and results."""
    spelling = SPELLINGS[kernel]
    return {name for name in (*spelling.in_specs, *spelling.out_specs) if name}


def meant_specs(kernel: str, keyword: str) -> list[str]:
    """Returns which specs of a kernel a keyword means that names a spec and not whose; empty for other keywords."""
    spelling, inner = SPELLINGS[kernel], [name for name in SPELLINGS[kernel].in_specs if name]
    if keyword in ("spec", "in_spec", "specs", "in_specs", "sharding"):
        return inner or list(spelling.out_specs)
    return list(spelling.out_specs) if keyword in ("out_specs", "out_sharding") else []


def check_given(kernel: str, operands: Sequence[object]) -> None:
    """Checks that no operand is None that a kernel needs.

    Raises:
        OperandCountError: if one is; tells which.
    """
    spelling = SPELLINGS[kernel]
    for name, operand in zip(spelling.operands, operands, strict=False):
        if operand is None and name not in spelling.optional:
            raise OperandCountError(f"{name} is None, and {kernel} needs it; give an array or a number", field=name)


class Spelled(NamedTuple):
    """A call's parts in the form of the wire; an operand that is None is left out."""

    operands: tuple[Any, ...]
    in_specs: Sequence[SpecLike | None] | None
    out_specs: Sequence[SpecLike | None] | None
    parameters: dict[str, Any]


def spell(
    kernel: str,
    operands: Sequence[Any],
    keywords: Mapping[str, Any],
    *,
    in_specs: Sequence[SpecLike | None] | None = None,
    out_specs: Sequence[SpecLike | None] | None = None,
) -> Spelled:
    """Sorts keywords into operands, specs and parameters.

    Raises:
        InvalidOperandError: if an operand is given both by position and by name.
        InvalidRequestError: if a spec is given both by name and in ``in_specs`` or ``out_specs``.
    """
    parameters = dict(keywords)
    if spelling := SPELLINGS.get(kernel):
        operands = _named_operands(kernel, spelling, operands, parameters)
        in_specs = _named_specs("in_specs", spelling.in_specs, in_specs, parameters)
        out_specs = _named_specs("out_specs", spelling.out_specs, out_specs, parameters)
    return Spelled(_trim(operands), in_specs, out_specs, parameters)


def _named_operands(kernel: str, spelling: Spelling, given: Sequence[Any], keywords: dict[str, Any]) -> Sequence[Any]:
    missing = max(len(spelling.operands) - len(given), 0)
    operands = [*given, *[None] * missing]
    for i, name in enumerate(spelling.operands):
        named = keywords.pop(name, None)
        if named is None:
            continue
        if operands[i] is not None:
            raise InvalidOperandError(
                f"operand {name!r} of kernel {kernel!r} is given by position and by name; give it once",
                field=name,
            )
        operands[i] = named
    return operands


def _named_specs(
    whole: str,
    names: tuple[str | None, ...],
    given: Sequence[SpecLike | None] | None,
    keywords: dict[str, Any],
) -> Sequence[SpecLike | None] | None:
    named = [None if name is None else keywords.pop(name, None) for name in names]
    if all(spec is None for spec in named):
        return given
    if given is not None:
        used = [name for name, spec in zip(names, named, strict=True) if spec is not None]
        raise InvalidRequestError(f"{used[0]} and {whole} are both given; give one of them", field=whole)
    return _trim(named)


def _trim(items: Sequence[Any]) -> tuple[Any, ...]:
    end = len(items)
    while end and items[end - 1] is None:
        end -= 1
    return tuple(items[:end])
