"""The generated pages of the reference: their texts and their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from site_pages import client, functions, kernels, metrics, protos, settings

_PAGES: Mapping[str, Any] = {
    "client.md": client.client_page,
    "types.md": client.types_page,
    "asyncio.md": client.asyncio_page,
    "error_classes.md": client.errors_page,
    "methods.md": functions.methods_page,
    "xp.md": functions.xp_page,
    "xp_modules.md": functions.modules_page,
    "kernels.md": kernels.page,
    "settings.md": settings.page,
    "metrics.md": metrics.page,
}


def pages() -> dict[str, str]:
    """Returns the texts of the pages by their paths below docs/."""
    return {f"reference/{name}": text() for name, text in _PAGES.items()} | protos.pages()


def navigation() -> list[Any]:
    """Returns the pages in the order of the navigation."""
    return ["reference/client.md", *(f"reference/{name}" for name in list(_PAGES)[1:]), {"Protos": protos.navigation()}]
