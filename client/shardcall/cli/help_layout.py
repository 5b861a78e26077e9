"""The layout of help: commands and options in named groups, within 80 columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

_RANGE = re.compile(r"(; )?x>=[\d.]+(<=[\d.]+)?(?=\])|\s*\[\]")
_FIRST = "Arguments"
_USUAL = "Options"
_LAST = "Connection"


class GroupedCommand(TyperCommand):
    """A command whose options are listed by the name of their group."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Returns the parts of the usage line: ``KERNEL [OPERAND]...``."""
        arguments = [parameter for parameter in self.get_params(ctx) if parameter.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_usage, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes one list for each group: arguments first, the options of the connection last."""
        _write_options(self, ctx, formatter)


class GroupedCommands(TyperGroup):
    """A command with subcommands, listed in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the subcommands and then the options of the command itself."""
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes one list for each group of subcommands, with columns of one width."""
        groups: dict[str, list[tuple[str, str]]] = {}
        width = max((len(name) for name in self.commands), default=0)
        for name, command in self.commands.items():
            title = getattr(command, "rich_help_panel", None)
            text = command.get_short_help_str(formatter.width - width - 6)
            groups.setdefault(title if isinstance(title, str) else "Commands", []).append((name.ljust(width), text))
        _write(formatter, groups)


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    groups: dict[str, list[tuple[str, str]]] = {_FIRST: [], _USUAL: []}
    for parameter in command.get_params(ctx):
        if (record := parameter.get_help_record(ctx)) is None:
            continue
        is_argument = parameter.param_type_name == "argument"
        title = getattr(parameter, "rich_help_panel", None) or (_FIRST if is_argument else _USUAL)
        names = _usage(parameter) if is_argument else record[0]
        groups.setdefault(title, []).append((names, _RANGE.sub("", record[1].replace("  [required]", ""))))
    last = {title: groups.pop(title) for title in (_LAST,) if title in groups}
    _write(formatter, {**groups, **last})


def _usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    many = "..." if argument.nargs == -1 else ""
    return f"{name}{many}" if argument.required else f"[{name}]{many}"


def _write(formatter: Any, groups: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    for title, rows in groups.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)
