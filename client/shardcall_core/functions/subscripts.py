"""The subscripts of `einsum`, by NumPy's grammar."""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Sequence
from typing import Any

_LETTERS = string.ascii_uppercase + string.ascii_lowercase
_TERM = re.compile(r"([A-Za-z]*)(?:(\.\.\.)([A-Za-z]*))?")


def operand_names(count: int) -> list[str]:
    """Returns the names of ``count`` operands, as in `Function.operand_name`."""
    return ["lhs", "rhs", *(f"others[{i}]" for i in range(count - 2))][:count]


def parse(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Returns the labels of operands and result, ``...`` written out, as ``np.einsum`` understands them.

    Args:
        subscripts: such as ``"ij,jk->ik"``, ``"...ii->...i"`` or, with the result left to the rules, ``"ij,jk"``.
        shapes: the shapes of one operand or more.

    Raises:
        ValueError: for subscripts that ``np.einsum`` refuses; sizes are not compared.
    """
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise ValueError(
            f"has {_count(len(terms), 'term')} and {_count(len(shapes), 'operand')} came; "
            "give one term for each operand, separated by ','"
        )
    labels = list(map(_labels, terms, operand_names(len(shapes)), shapes))
    stretch = max((tuple(label for label in axes if label.isdigit()) for axes in labels), key=len)
    every = [label for axes in labels for label in axes]
    if arrow:
        return labels, _result(right, stretch, every)
    return labels, (*stretch, *sorted(label for label in every if every.count(label) == 1 and not label.isdigit()))


def of_one_operand(subscripts: str, shape: tuple[int, ...]) -> str:
    """Returns the subscripts of one operand with a letter for every axis, and with the result: ``"abb->ab"``.

    Args:
        subscripts: as of `parse`.
        shape: the shape of the operand.

    Raises:
        ValueError: as of `parse`.
    """
    (labels,), result = parse(subscripts, [shape])
    letters = dict(zip(dict.fromkeys(labels), _LETTERS, strict=False))
    return f"{''.join(letters[label] for label in labels)}->{''.join(letters[label] for label in result)}"


def from_labels(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Returns the subscripts and the operands of a call with lists of integers as labels.

    Args:
        arguments: each operand, then its labels, from 0 to 51 or ``...``; at last the labels of the result, unless they
            are left to NumPy's rule.

    Raises:
        ValueError: for other integers.
        TypeError: for labels that are no list of integers.
    """
    count = len(arguments) // 2
    operands, terms = tuple(arguments[: 2 * count : 2]), [_term(labels) for labels in arguments[1 : 2 * count : 2]]
    result = f"->{_term(arguments[-1])}" if len(arguments) % 2 else ""
    return ",".join(terms) + result, operands


def _term(labels: Any) -> str:
    letters = []
    for label in labels:
        index = 0 if label is Ellipsis else operator.index(label)
        if index not in range(len(_LETTERS)):
            raise ValueError(f"has the label {index}; labels are integers from 0 to {len(_LETTERS) - 1}, or ...")
        letters.append("..." if label is Ellipsis else _LETTERS[index])
    return "".join(letters)


def _labels(term: str, name: str, shape: tuple[int, ...]) -> tuple[str, ...]:
    before, dots, after = _parts(term, name)
    more = len(shape) - len(before) - len(after)
    if more < 0 or (more and not dots):
        raise ValueError(
            f"has {_count(len(before + after), 'label')} for {name}, which has {_count(len(shape), 'axis')} "
            f"(shape {shape}); give each axis a label" + (", or write ... for the others" if more > 0 else "")
        )
    # Axes that ... stands for are aligned at the right.
    return (*before, *(str(i) for i in range(more, 0, -1)), *after)


def _result(right: str, stretch: tuple[str, ...], every: Sequence[str]) -> tuple[str, ...]:
    before, dots, after = _parts(right, "the result")
    for label in before + after:
        if label not in every:
            raise ValueError(f"has {label!r} in the result, which no operand has; sum labels up or keep them")
        if (before + after).count(label) > 1:
            raise ValueError(f"has {label!r} more than once in the result; name it once")
    if stretch and not dots:
        axes = _count(len(stretch), "axis")
        raise ValueError(f"lets ... stand for {axes} that the result lacks; write ... there too")
    return (*before, *stretch, *after)


def _parts(term: str, name: str) -> tuple[str, str, str]:
    # The labels before the dots, the dots, and the labels after them.
    if match := _TERM.fullmatch(term):
        return match[1], match[2] or "", match[3] or ""
    wrong = next((c for c in term if c not in string.ascii_letters + "."), None)
    fault = f"{wrong!r} in the term of {name}" if wrong else f"a '.' in the term of {name} that is not of one '...'"
    raise ValueError(f"has {fault}; a term is letters, and '...' once")


def _count(n: int, what: str) -> str:
    plural = "axes" if what == "axis" else f"{what}s"
    return f"{n} {what if n == 1 else plural}"
