"""The groups of pages, from the tables of docs/index.md."""

from __future__ import annotations

import re

_GROUP = re.compile(r"^## (.+)$|^\| \[[^\]]+\]\(([\w.]+)\)", re.MULTILINE)


def groups_of(index: str) -> dict[str, list[str]]:
    """Returns the pages that the tables of an index list, by the heading above them."""
    groups: dict[str, list[str]] = {}
    pages: list[str] = []
    for title, page in _GROUP.findall(index):
        if title:
            pages = groups.setdefault(title, [])
        else:
            pages.append(page)
    return {title: pages for title, pages in groups.items() if pages}
