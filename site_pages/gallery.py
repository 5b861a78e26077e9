"""The gallery: its programs are executed, and a page for each shows its picture, its times and its source."""

from __future__ import annotations

from typing import Any


def navigation() -> list[Any]:
    return []


def files(*, execute: bool) -> dict[str, str | bytes]:
    return {}
