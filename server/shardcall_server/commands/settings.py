"""The settings that `shardcall serve` would have, for `shardcall config show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from shardcall_server.commands.serve import serve
from shardcall_server.settings import ENVIRONMENT_ONLY
from shardcall_server.settings_sources import load_settings, sources_of


def settings_of(arguments: list[str], file: Path | None) -> list[tuple[str, Any, bool, tuple[str, str]]]:
    """Returns the name of each setting, its value, whether that is a secret, and its source.

    Args:
        arguments: flags of `shardcall serve`.
        file: a TOML file with settings.

    Raises:
        SettingsError: one is not valid; a ValueError.
    """
    flags = _flags_of(arguments)
    settings = load_settings(flags, file)
    sources = sources_of(flags, file)
    entries = []
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if name in ENVIRONMENT_ONLY:
            value = value.get_secret_value()
        entries.append((name, value, name in ENVIRONMENT_ONLY and bool(value), sources[name]))
    return entries


def _flags_of(arguments: list[str]) -> dict[str, Any]:
    """Returns the settings in the flags of `shardcall serve`, as that command parses them."""
    parser = typer.Typer(rich_markup_mode=None, add_completion=False)
    parsed: dict[str, Any] = {}

    def collect(**flags: Any) -> None:
        parsed.update({name: value for name, value in flags.items() if value is not None})

    collect.__signature__ = serve.__signature__  # type: ignore[attr-defined]
    collect.__annotations__ = serve.__annotations__
    parser.command()(collect)
    parser(arguments, prog_name="shardcall config show", standalone_mode=False)
    return {name: value for name, value in parsed.items() if name not in ("config", "exit_with_stdin")}
