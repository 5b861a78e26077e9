"""Reads the settings from the command's flags, the environment and a file, and reports wrong ones."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from shardcall_core.call_error import did_you_mean
from shardcall_core.wire.variables import is_service_link
from shardcall_server.settings import ENVIRONMENT_ONLY, ENVIRONMENT_PREFIX, Settings, SettingsError


def load_settings(flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Reads the settings.

    Args:
        flags: the flags of the command line, by setting name.
        config: a TOML file; None for none.

    Raises:
        SettingsError: a key is unknown, or a value is not allowed.
    """
    values = _read_toml(config) if config else {}
    for name in values:
        if name in ENVIRONMENT_ONLY:
            raise SettingsError(
                f"{config}: {name} can only be set in the environment, as {ENVIRONMENT_PREFIX}{name.upper()}; or set "
                "token_file"
            )
        if name not in Settings.model_fields:
            near = did_you_mean(name, Settings.model_fields, "shardcall config show")
            raise SettingsError(f"{config}: {name!r} is not a setting; {near}")

    class FileSettings(Settings):
        model_config = SettingsConfigDict(toml_file=config)

    try:
        return FileSettings(**flags)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        value = "not shown" if name == "token" else repr(first["input"])
        prefix = f"setting {name}{_source(name, flags, config)} is {value}: " if name else ""
        raise SettingsError(prefix + first["msg"].removeprefix("Value error, ")) from None


def sources_of(flags: Mapping[str, Any], config: Path | None = None) -> dict[str, tuple[str, str]]:
    """Returns the source of each setting: ``flag``, ``environment``, ``file`` or ``default``, and its name.

    Args:
        flags: as for `load_settings`.
        config: as for `load_settings`.

    Raises:
        SettingsError: the file cannot be read.
    """
    variables = {
        key.upper().removeprefix(ENVIRONMENT_PREFIX).lower(): key
        for key, value in os.environ.items()
        if key.upper().startswith(ENVIRONMENT_PREFIX)
        and not is_service_link(key.upper().removeprefix(ENVIRONMENT_PREFIX).lower(), value)
    }
    of_file = _read_toml(config) if config else {}

    def source(name: str) -> tuple[str, str]:
        if name in flags:
            return "flag", f"--{name.replace('_', '-')}"
        if name in variables:
            return "environment", variables[name]
        return ("file", str(config)) if name in of_file else ("default", "")

    return {name: source(name) for name in Settings.model_fields}


def _source(name: str, flags: Mapping[str, Any], config: Path | None) -> str:
    """Returns the source of a setting for a message; empty for a flag."""
    if name in flags:
        return ""
    variable = next((key for key in os.environ if key.upper() == ENVIRONMENT_PREFIX + name.upper()), "")
    return f" (environment variable {variable})" if variable else f" (file {config})" if config else ""


def _read_toml(config: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"the settings file {config} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SettingsError(
            f"the settings file {config} is not UTF-8: byte {error.start} is {error.object[error.start]:#x}"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the settings file {config} is not TOML: {error}") from None
