"""The canonical form of the subscripts of `einsum`, which equal calls share."""

from __future__ import annotations

import string
from collections.abc import Sequence

from shardcall_core.call_error import CallError, Reason, shorten
from shardcall_core.functions.contraction import Labels
from shardcall_core.functions.subscripts import operand_names, parse
from shardcall_core.layouts.layout import ArrayType

FIELD = "subscripts"


def canonical(subscripts: str, operands: Sequence[ArrayType]) -> str:
    """Returns the subscripts with labels renamed in order of occurrence, and ``...`` and the result written out.

    Raises:
        CallError: for subscripts that ``np.einsum`` refuses.
    """
    try:
        labels, result = parse(subscripts, [operand.shape for operand in operands])
    except ValueError as error:
        raise CallError(Reason.INVALID_PARAMETER, f"{FIELD}={shorten(subscripts)!r} {error}", field=FIELD) from None
    _check_sizes(subscripts, labels, operands)
    names = {label: _symbol(i) for i, label in enumerate(dict.fromkeys(label for axes in labels for label in axes))}
    *terms, right = ("".join(names[label] for label in axes) for axes in (*labels, result))
    return f"{','.join(terms)}->{right}"


def read(subscripts: str) -> tuple[tuple[Labels, ...], Labels]:
    """Returns the labels of a canonical form."""
    operands, _, result = subscripts.partition("->")
    return tuple(map(tuple, operands.split(","))), tuple(result)


def _check_sizes(subscripts: str, labels: Sequence[Labels], operands: Sequence[ArrayType]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for name, axes, operand in zip(operand_names(len(operands)), labels, operands, strict=True):
        operand_sizes: dict[str, int] = {}
        for i, (label, size) in enumerate(zip(axes, operand.shape, strict=True)):
            here, other = f"axis {i} of {name}", sizes.get(label, (1, ""))
            alone = operand_sizes.setdefault(label, size) != size
            if alone or (size != other[0] and 1 not in (size, other[0])):
                met = f"another axis of {name} ({operand_sizes[label]})" if alone else f"{other[1]} ({other[0]})"
                shown = "..." if label.isdigit() else label
                raise CallError(
                    Reason.INVALID_OPERAND,
                    f"in subscripts={shorten(subscripts)!r} {here} ({size}) and {met} have one label, {shown!r}; "
                    "give axes of one size" + ("" if alone else ", or of size 1"),
                    field=name,
                )
            if other[0] == 1:
                sizes[label] = (size, here)


def _symbol(i: int) -> str:
    """Returns a character for a label; two arrays of the maximum rank have more labels than there are letters."""
    return string.ascii_letters[i] if i < len(string.ascii_letters) else chr(ord("À") + i - len(string.ascii_letters))
