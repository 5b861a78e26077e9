"""Where settings are given: the command's flags, the environment, a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict

from shardcall_server.errors import did_you_mean
from shardcall_server.settings import ENVIRONMENT_ONLY, ENVIRONMENT_PREFIX, Settings, SettingsError


def load_settings(flags: Mapping[str, Any], config: Path | None = None) -> Settings:
    """Reads the settings.

    Args:
        flags: those given on the command line, by setting name.
        config: a TOML file; None for none.

    Raises:
        SettingsError: an unknown key, with the nearest known; or a value that is not allowed.
    """
    known = Settings.model_fields
    values = _read_toml(config) if config else {}
    for name in values:
        if name in ENVIRONMENT_ONLY:
            raise SettingsError(
                f"{config}: {name} is given by the environment alone, as {ENVIRONMENT_PREFIX}{name.upper()}; or name a "
                "token_file"
            )
        if name not in known:
            raise SettingsError(f"{config}: {name!r} is no setting; {did_you_mean(name, known)}")

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=config)

    try:
        return FromFile(**flags)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        value = "not told here" if name == "token" else repr(first["input"])
        given = f"setting {name}{_source(name, flags, config)} is {value}: " if name else ""
        raise SettingsError(given + first["msg"].removeprefix("Value error, ")) from None


def _source(name: str, flags: Mapping[str, Any], config: Path | None) -> str:
    """Where a setting was given; of a flag it need not be said."""
    variable = ENVIRONMENT_PREFIX + name.upper()
    if name in flags:
        return ""
    given = next((key for key in os.environ if key.upper() == variable), "")
    return f" (environment variable {given})" if given else f" (file {config})" if config else ""


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
