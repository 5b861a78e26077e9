"""Markdown of docstrings and comments, tables, and headings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import griffe

_LIST_ITEM = re.compile(r"[*-] ")
_LIST_PART = re.compile(r"[*-] |  ")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a table, in whose cells lines are joined."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(' '.join(cell.split()).replace('|', '&#124;') for cell in row)} |" for row in lines
    )


def comment(text: str) -> str:
    """Returns the Markdown of a comment in a proto: lists begin after an empty line, and their items are indented."""
    lines: list[str] = []
    for line in text.strip().splitlines():
        if _LIST_ITEM.match(line) and lines and lines[-1] and not _LIST_PART.match(lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def docstring(text: str, *, without: Iterable[str] = ()) -> str:
    """Returns the Markdown of a docstring.

    Args:
        text: the docstring, in Google's style, without indentation.
        without: arguments that are left out.
    """
    sections = griffe.Docstring(text).parse("google", warnings=False)
    return "\n\n".join(part for section in sections for part in _section(section, set(without)))


def _section(section: Any, without: set[str]) -> Iterator[str]:
    match section.kind.value:
        case "text":
            yield section.value
        case "parameters":
            items = [f"- `{item.name}`: {_line(item)}" for item in section.value if item.name not in without]
            yield "\n".join(items)
        case "returns" | "yields":
            yield "**Returns:** " + " ".join(_line(item) for item in section.value)
        case "raises":
            yield "**Raises:**"
            yield "\n".join(f"- `{item.annotation}`: {_line(item)}" for item in section.value)
        case "examples" | "admonition":
            yield "**Example:**"
            yield f"```pycon\n{_example(section)}\n```"


def _example(section: Any) -> str:
    if section.kind.value == "admonition":
        return str(section.value.contents)
    return "\n".join(text for _, text in section.value)


def _line(item: Any) -> str:
    return " ".join(item.description.split())
