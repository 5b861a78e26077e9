"""The page of the settings, from their groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from shardcall_server import setting_groups
from shardcall_server.settings import ENVIRONMENT_PREFIX, Settings
from site_pages.markup import table


def page() -> str:
    """Returns the text of the page."""
    introduction = (
        "Every setting is an option of `shardcall serve`, a variable of the environment and a key of a file of "
        f"settings: `--max-call-s`, `{ENVIRONMENT_PREFIX}MAX_CALL_S` and `max_call_s` are one. "
        "[Serving](../serving.md) describes which of them counts."
    )
    return "\n\n".join(["# Settings", introduction, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    for group in _groups():
        yield f"## {group.__name__.removesuffix('Settings')}"
        yield (group.__doc__ or "").strip()
        rows = [
            (f"`--{name.replace('_', '-')}`", field.description or "", _default(field), _range(field))
            for name, field in group.model_fields.items()
        ]
        yield table(("setting", "meaning", "default", "allowed"), rows)


def _groups() -> list[type[BaseModel]]:
    """Returns the groups of which the settings consist, in the order of their source."""
    values = vars(setting_groups).values()
    return [
        value for value in values if isinstance(value, type) and value in Settings.__mro__ and value is not BaseModel
    ]


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "of the user"
    value: Any = getattr(field.default, "get_secret_value", lambda: field.default)()
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"`{value}`" if str(value) else ""


def _range(field: FieldInfo) -> str:
    """Returns the values that a field allows, as its constraints or its type say."""
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(constraint, name):,}"
        for constraint in field.metadata
        for name, sign in signs.items()
        if getattr(constraint, name, None) is not None
    ]
    if bounds:
        return ", ".join(bounds)
    options = getattr(field.annotation, "__args__", ())
    return ", ".join(f"`{option}`" for option in options if isinstance(option, str) and option)
