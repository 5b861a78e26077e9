"""Converts the settings of a private server to options of its command, and its refusals back to Python's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from shardcall_core.types.errors import InvalidParameterError, UnknownParameterError

Setting: TypeAlias = bool | int | float | str

_NO_OPTION = re.compile(r"No such option: (--\S+)(.*?)(?:\(see: .*)?$", re.DOTALL)
_NO_VALUE = re.compile(r"Option '?(--[\w-]+)'? requires an argument")
_EXTRA_ARGUMENT = re.compile(r"Got unexpected extra arguments? ?\(?s?\)? ?\((.*?)\)")
_SETTING = re.compile(r"setting (\w+) ")
_OPTION = re.compile(r"--[\w-]+")


def options(settings: Mapping[str, Setting]) -> list[str]:
    """Returns the options of ``shardcall serve`` for settings."""
    arguments = []
    for name, value in settings.items():
        arguments.append(_flag(name, value))
        if not isinstance(value, bool):
            arguments.append(str(value))
    return arguments


def refusal(settings: Mapping[str, Setting], keywords: Sequence[str], reason: str) -> InvalidParameterError | None:
    """Returns the error for a setting that a server refused.

    Args:
        keywords: the other keywords of `shardcall.local`.
        reason: the reason why the server exited.

    Returns:
        The error; None if the reason is not about a setting.
    """
    names = {_flag(name, value): name for name, value in settings.items()}
    if (match := _NO_OPTION.match(reason)) and match[1] in names:
        return _unknown(names[match[1]], settings, keywords, _OPTION.findall(match[2]))
    if (match := _NO_VALUE.match(reason)) and match[1] in names:
        return _no_switch(names[match[1]], settings)
    if match := _EXTRA_ARGUMENT.match(reason):
        name = next((name for name, value in settings.items() if str(value) == match[1]), "")
        field = f"{name} is {match[1]}" if name else f"what is True or False was given as {match[1]}"
        return InvalidParameterError(f"{field}; give True or False", field=name)
    if (match := _SETTING.match(reason)) and match[1] in settings:
        return InvalidParameterError(reason, field=match[1])
    return None


def _unknown(
    name: str, settings: Mapping[str, Setting], keywords: Sequence[str], similar: Sequence[str]
) -> InvalidParameterError:
    suggested = [flag.removeprefix("--").replace("-", "_") for flag in similar]
    if name in suggested:
        return _no_switch(name, settings)
    switches = [other.removeprefix("no_") for other in suggested]
    near = get_close_matches(name, [*keywords, *suggested, *switches], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "shardcall serve --help lists them, with hyphens"
    return UnknownParameterError(f"{name!r} is no setting of the server and no argument of local; {hint}", field=name)


def _no_switch(name: str, settings: Mapping[str, Setting]) -> InvalidParameterError:
    return InvalidParameterError(f"setting {name} is {settings[name]!r}, and takes a value; give one", field=name)


def _flag(name: str, value: Setting) -> str:
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
