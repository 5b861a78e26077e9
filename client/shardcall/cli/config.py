"""``shardcall config``: settings, their values and where these come from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from shardcall.cli.exits import CommandError, plain_errors
from shardcall.cli.help_layout import GroupedCommand, GroupedCommands
from shardcall.cli.output import AsJson, console, print_json
from shardcall.cli.server_parts import server_part
from shardcall_core.access.addresses import ADDRESS_VARIABLE, USUAL_ADDRESS
from shardcall_core.access.tls import CA_VARIABLE
from shardcall_core.wire import token_file

config = typer.Typer(
    help="Show the settings of clients and servers.", rich_markup_mode=None, no_args_is_help=True, cls=GroupedCommands
)

_HIDDEN = "set, not shown"
_FLAGS = {"allow_extra_args": True, "ignore_unknown_options": True}

Setting = dict[str, Any]
"""The entry of a setting: its name, value, source (flag, environment, file or default) and what gives it."""


@config.callback()
def _config() -> None:
    """Show the settings of clients and servers."""


@config.command(cls=GroupedCommand, context_settings=_FLAGS)
def show(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", envvar="SHARDCALL_CONFIG", help="A TOML file.")
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Leave out what has its default.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show settings, their values and what gives them.

    That is a flag, the environment, a file or a default.

    Flags of shardcall serve may follow: shardcall config show --devices 8
    """
    with plain_errors():
        entries = [*_client_settings(), *_server_settings(context.args, file)]
    entries = [entry for entry in entries if not (changed and entry["source"] == "default")]
    if as_json:
        print_json(entries)
        return
    table = Table()
    for name in ("of", "setting", "value", "source"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        origin = f" ({entry['origin']})" if entry["origin"] else ""
        table.add_row(entry["of"], entry["name"], str(entry["value"]), entry["source"] + origin)
    console().print(table)


def _client_settings() -> list[Setting]:
    """Returns the settings of `shardcall.connect` and of commands that connect."""
    usual_file = token_file.usual_path() or ""
    return [
        _variable("address", ADDRESS_VARIABLE, USUAL_ADDRESS),
        _variable("token", token_file.TOKEN_VARIABLE, "", is_secret=True),
        _variable("token_file", token_file.FILE_VARIABLE, usual_file),
        _variable("ca_certificate", CA_VARIABLE, ""),
    ]


def _variable(name: str, variable: str, default: str, *, is_secret: bool = False) -> Setting:
    value = os.environ.get(variable, "")
    shown = _HIDDEN if value and is_secret else value or default
    return _entry("client", name, shown, "environment" if value else "default", variable if value else "")


def _entry(of: str, name: str, value: Any, source: str, origin: str = "") -> Setting:
    return {"of": of, "name": name, "value": value, "source": source, "origin": origin}


def _server_settings(arguments: list[str], file: Path | None) -> list[Setting]:
    """Returns the settings that `shardcall serve` would have with these flags; none without the server.

    Raises:
        CommandError: if one is not valid.
    """
    try:
        settings_of = server_part("settings")
    except ImportError:
        if arguments or file:
            raise CommandError(
                "the settings of a server need the extra server: pip install 'shardcall[server]'"
            ) from None
        return []
    try:
        entries = settings_of(arguments, file)
    except ValueError as error:
        raise CommandError(str(error), 2) from None
    return [_entry("server", name, _HIDDEN if secret else value, *origin) for name, value, secret, origin in entries]
