"""The command with its subcommands."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from shardcall._src.local.server_packages import missing_packages
from shardcall.cli.exits import INTERRUPTED
from shardcall.cli.help_layout import GroupedCommand, GroupedCommands
from shardcall.cli.server_parts import server_part
from shardcall.cli.version_text import version_text
from shardcall_core.call_error import shorten
from shardcall_core.wire.variables import report_unknown

_GROUPS = {
    "Ask a server": ("info", "kernels", "health", "status", "top", "doctor"),
    "Compute": ("demo", "plan", "call", "bench", "trace"),
    "Arrays that stay on the mesh": ("put", "get", "ls", "rm", "share", "unshare"),
    "Files of the server": ("save", "load", "files", "checkpoint"),
    "Serve": ("serve", "worker", "token", "certificates", "client-config", "config", "cache"),
}
_COMMANDS = {name: group for group, names in _GROUPS.items() for name in names}
_MODULES = dict.fromkeys(_GROUPS["Arrays that stay on the mesh"], "arrays") | dict.fromkeys(
    ("save", "load", "checkpoint"), "files"
)
# of the others, the module has the name
_OF_THE_SERVER = frozenset({"serve", "worker", "certificates"})
# typer has a private copy of click, of which this is the only public name.
_UsageError: Any = typer.BadParameter.__base__


def run(arguments: Sequence[str]) -> None:
    """Runs the command and exits; an error is one plain line."""
    report_unknown(lambda sentence: typer.echo(f"shardcall warning: {sentence}", err=True))
    try:
        status = make_app(arguments)(arguments or ["--help"], prog_name="shardcall", standalone_mode=False)
        sys.stdout.flush()
    except _UsageError as error:
        where = error.ctx.command_path if error.ctx else "shardcall"
        typer.echo(f"shardcall: {_shown(error).rstrip('.')} (see: {where} --help)", err=True)
        status = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except BrokenPipeError:  # such as `shardcall kernels | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)


def _shown(error: Any) -> str:
    """Returns the message of wrong usage, with the value that was given where typer leaves it out."""
    message: str = error.format_message()
    problems = getattr(error.__cause__, "errors", None)
    if problems is None:
        return message
    return message.replace("Invalid value for", f"Invalid value {shorten(repr(problems()[0]['input']))} for", 1)


def make_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """Returns the command with its subcommands, or with the requested one alone, since each imports much."""
    # Typer's rich help cuts long names of options at 80 columns.
    app = typer.Typer(cls=GroupedCommands, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(_options)
    asked = [name for name in arguments[:1] if name in _COMMANDS]
    for name in asked or _COMMANDS:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    """Adds a subcommand by the name of its module, or one that reports a missing package."""
    group = _COMMANDS[name]
    try:
        command = _command(name.replace("-", "_"))
    except ImportError as error:
        if name not in _OF_THE_SERVER:
            raise
        any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True}
        refuse = _refusal(name, ", ".join(missing_packages()) or error.name or str(error))
        app.command(name, context_settings=any_arguments, rich_help_panel=group)(refuse)
        return
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, rich_help_panel=group)
    else:
        app.command(name, cls=GroupedCommand, rich_help_panel=group)(command)


def _command(name: str) -> Any:
    if name in _OF_THE_SERVER:
        return server_part(name)
    return getattr(importlib.import_module(f"shardcall.cli.{_MODULES.get(name, name)}"), name)


def _refusal(name: str, missing: str) -> Callable[[], None]:
    def refuse() -> None:
        """It needs the extra `server`: pip install 'shardcall[server]'."""
        typer.echo(f"shardcall {name} needs {missing}: pip install 'shardcall[server]'", err=True)
        raise typer.Exit(1)

    return refuse


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(version_text())
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Call sharded JAX kernels on another machine's device mesh.

    The server is that of --address, else of SHARDCALL_ADDRESS, else localhost:8470. A server of this user on this
    machine needs no token; for others SHARDCALL_TOKEN gives it.
    """
