"""Links of pages: anchors as a code host makes them, titles of pages, and links to files that are no pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
_OUT_OF_DOCS = re.compile(r"\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
_NAMED_BY_FILE = re.compile(r"\[(\w+\.md)\](?=\(\1)")


def anchor(heading: str, separator: str = "-") -> str:
    """Returns the anchor of a heading, as a code host makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def with_links_to_the_project(markdown: str) -> str:
    """Returns the text of a page of docs/ with links to files elsewhere replaced by addresses of the project."""

    def address(link: re.Match[str]) -> str:
        path = link[1].rstrip("/")
        view = "tree" if (ROOT / path).is_dir() else "blob"
        return f"]({PROJECT}/{view}/main/{path}{link[2] or ''})"

    return _OUT_OF_DOCS.sub(address, markdown)


def with_titles(markdown: str) -> str:
    """Returns the text of a page with links that name the file of another page naming its title."""
    return _NAMED_BY_FILE.sub(lambda link: f"[{_title(link[1])}]", markdown)


def _title(page: str) -> str:
    return (ROOT / "docs" / page).read_text().partition("\n")[0].removeprefix("# ")
