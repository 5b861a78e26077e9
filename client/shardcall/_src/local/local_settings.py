"""The settings of a private server as Python's keywords: as options of its command, and back from what it refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TypeAlias

from shardcall._src.types.errors import InvalidParameterError, UnknownParameterError

Setting: TypeAlias = bool | int | float | str

_NO_OPTION = re.compile(r"No such option: (--\S+)(.*?)(?:\(see: .*)?$", re.DOTALL)
_NO_VALUE = re.compile(r"Option '?(--[\w-]+)'? requires an argument")
_NO_PLACE = re.compile(r"Got unexpected extra arguments? ?\(?s?\)? ?\((.*?)\)")
_SETTING = re.compile(r"setting (\w+) ")
_OPTION = re.compile(r"--[\w-]+")


def options(settings: Mapping[str, Setting]) -> list[str]:
    """Returns the options of ``shardcall serve`` that say the same."""
    words = []
    for name, value in settings.items():
        words.append(_flag(name, value))
        if not isinstance(value, bool):
            words.append(str(value))
    return words


def refusal(settings: Mapping[str, Setting], own: Sequence[str], told: str) -> InvalidParameterError | None:
    """Returns the error that says in Python's words what a server refused.

    Args:
        settings: what it was given.
        own: the keywords beside them.
        told: why it ended.

    Returns:
        The error; None where what was told is of none of the settings.
    """
    names = {_flag(name, value): name for name, value in settings.items()}
    if (match := _NO_OPTION.match(told)) and match[1] in names:
        return _unknown(names[match[1]], settings, own, _OPTION.findall(match[2]))
    if (match := _NO_VALUE.match(told)) and match[1] in names:
        return _no_switch(names[match[1]], settings)
    if match := _NO_PLACE.match(told):
        name = next((name for name, value in settings.items() if str(value) == match[1]), "")
        field = f"{name} is {match[1]}" if name else f"what is True or False was given as {match[1]}"
        return InvalidParameterError(f"{field}; give True or False", field=name)
    if (match := _SETTING.match(told)) and match[1] in settings:
        return InvalidParameterError(told, field=match[1])
    return None


def _unknown(
    name: str, settings: Mapping[str, Setting], own: Sequence[str], similar: Sequence[str]
) -> InvalidParameterError:
    known = [flag.removeprefix("--").replace("-", "_") for flag in similar]
    if name in known:
        return _no_switch(name, settings)
    switches = [other.removeprefix("no_") for other in known]
    near = get_close_matches(name, [*own, *known, *switches], n=1)
    hint = f"did you mean {near[0]!r}?" if near else "shardcall serve --help lists them, with hyphens"
    return UnknownParameterError(f"{name!r} is no setting of the server and no argument of local; {hint}", field=name)


def _no_switch(name: str, settings: Mapping[str, Setting]) -> InvalidParameterError:
    return InvalidParameterError(f"setting {name} is {settings[name]!r}, and takes a value; give one", field=name)


def _flag(name: str, value: Setting) -> str:
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"
