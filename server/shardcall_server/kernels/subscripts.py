"""The subscripts of `einsum`: NumPy's grammar, and the one form that equal calls share."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from itertools import count

from shardcall_server.errors import CallError, Reason, shorten
from shardcall_server.kernels.contraction import Labels, operand_names
from shardcall_server.kernels.layout import ArrayType

FIELD = "subscripts"
_TERM = re.compile(r"([A-Za-z]*)(?:(\.\.\.)([A-Za-z]*))?")


def parse(subscripts: str, operands: Sequence[ArrayType]) -> tuple[tuple[Labels, ...], Labels]:
    """Returns the labels of operands and result, ``...`` written out, as ``np.einsum`` understands them.

    Args:
        subscripts: such as ``"ij,jk->ik"``, ``"...ii->...i"`` or, with the result left to the rules, ``"ij,jk"``.
        operands: the types of one operand or more.

    Raises:
        CallError: for all that ``np.einsum`` refuses.
    """
    written = subscripts.replace(" ", "")
    left, arrow, right = written.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise _refusal(subscripts, f"has {_count(len(terms), 'term')} and {_count(len(operands), 'operand')} came")
    named = zip(terms, operand_names(len(operands)), operands, strict=True)
    labels = [_labels(subscripts, term, name, operand) for term, name, operand in named]
    stretch = max((tuple(label for label in axes if label.isdigit()) for axes in labels), key=len)
    every = [label for axes in labels for label in axes]
    result = _result(subscripts, right, stretch, every) if arrow else _implicit(stretch, every)
    _check_sizes(subscripts, labels, operands)
    return tuple(labels), result


def canonical(labels: Sequence[Labels], result: Labels) -> str:
    """Returns the subscripts with labels renamed in order of occurrence, and ``...`` and the result written out."""
    symbols = map(_symbol, count())
    names: dict[str, str] = {}
    for label in (label for axes in labels for label in axes):
        if label not in names:
            names[label] = next(symbols)
    return (
        ",".join("".join(names[label] for label in axes) for axes in labels)
        + "->"
        + "".join(names[label] for label in result)
    )


def read(subscripts: str) -> tuple[tuple[Labels, ...], Labels]:
    """Returns the labels of a canonical form."""
    operands, _, result = subscripts.partition("->")
    return tuple(map(tuple, operands.split(","))), tuple(result)


def _labels(subscripts: str, term: str, name: str, operand: ArrayType) -> Labels:
    match = _match(subscripts, term, name)
    before, dots, after = match[1], match[2], match[3] or ""
    more = operand.ndim - len(before) - len(after)
    if more < 0 or (more and not dots):
        raise _refusal(
            subscripts,
            f"has {_count(len(before + after), 'label')} for {name}, which has {_count(operand.ndim, 'axis')} "
            f"(shape {shorten(operand.shape)})",
            "give each axis a label" + (", or write ... for the others" if more > 0 else ""),
        )
    # Axes that ... stands for meet from the right.
    return (*before, *(str(i) for i in range(more, 0, -1)), *after)


def _match(subscripts: str, term: str, name: str) -> re.Match[str]:
    if match := _TERM.fullmatch(term):
        return match
    wrong = next((c for c in term if c not in string.ascii_letters + "."), None)
    raise _refusal(
        subscripts,
        f"has {wrong!r} in the term of {name}"
        if wrong
        else f"has a '.' in the term of {name} that is not of one '...'",
        "a term is letters, and '...' once",
    )


def _implicit(stretch: Labels, every: Sequence[str]) -> Labels:
    return (*stretch, *sorted(label for label in set(every) if every.count(label) == 1 and not label.isdigit()))


def _result(subscripts: str, right: str, stretch: Labels, every: Sequence[str]) -> Labels:
    match = _match(subscripts, right, "the result")
    before, dots, after = match[1], match[2], match[3] or ""
    for label in before + after:
        if label not in every:
            raise _refusal(
                subscripts, f"has {label!r} in the result, which no operand has", "sum labels up or keep them"
            )
        if (before + after).count(label) > 1:
            raise _refusal(subscripts, f"has {label!r} more than once in the result", "name it once")
    if stretch and not dots:
        raise _refusal(
            subscripts,
            f"lets ... stand for {_count(len(stretch), 'axis')} that the result lacks",
            "write ... there too",
        )
    return (*before, *stretch, *after)


def _check_sizes(subscripts: str, labels: Sequence[Labels], operands: Sequence[ArrayType]) -> None:
    sizes: dict[str, tuple[int, str]] = {}
    for name, axes, operand in zip(operand_names(len(operands)), labels, operands, strict=True):
        own: dict[str, int] = {}
        for i, (label, size) in enumerate(zip(axes, operand.shape, strict=True)):
            here, other = f"axis {i} of {name}", sizes.get(label, (1, ""))
            alone = own.setdefault(label, size) != size
            if alone or (size != other[0] and 1 not in (size, other[0])):
                met = f"another axis of {name} ({own[label]})" if alone else f"{other[1]} ({other[0]})"
                shown = "..." if label.isdigit() else label
                raise CallError(
                    Reason.INVALID_OPERAND,
                    f"in subscripts={shorten(subscripts)!r} {here} ({size}) and {met} have one label, {shown!r}; "
                    "give axes of one size" + ("" if alone else ", or of size 1"),
                    field=name,
                )
            if other[0] == 1:
                sizes[label] = (size, here)


def _refusal(subscripts: str, what: str, hint: str = "give one term for each operand, separated by ','") -> CallError:
    return CallError(Reason.INVALID_PARAMETER, f"{FIELD}={shorten(subscripts)!r} {what}; {hint}", field=FIELD)


def _count(n: int, what: str) -> str:
    plural = "axes" if what == "axis" else f"{what}s"
    return f"{n} {what if n == 1 else plural}"


def _symbol(i: int) -> str:
    """Returns a character for each label; two arrays of most axes have more labels than there are letters."""
    return string.ascii_letters[i] if i < len(string.ascii_letters) else chr(ord("À") + i - len(string.ascii_letters))
