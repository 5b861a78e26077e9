"""The subcommands, put together."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import shardcall
from shardcall._src.wire.variables import report_unknown

_COMMANDS = ("serve", "worker", "info", "health", "status", "token", "certificates", "client-config")
_OF_THE_SERVER = frozenset({"serve", "worker", "certificates"})
# typer keeps a copy of click to itself, and this is the one name of it that is public.
_UsageError: Any = typer.BadParameter.__base__


def run(words: Sequence[str]) -> None:
    """Runs the command with these words, and ends the process; errors are one plain line."""
    report_unknown(lambda sentence: typer.echo(f"shardcall warning: {sentence}", err=True))
    try:
        status = make_app(words)(words or ["--help"], prog_name="shardcall", standalone_mode=False)
    except _UsageError as error:
        where = error.ctx.command_path if error.ctx else "shardcall"
        typer.echo(f"shardcall: {error.format_message().rstrip('.')} (see: {where} --help)", err=True)
        status = error.exit_code
    sys.exit(status)


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """Returns the command with its subcommands, or with that one alone which the words ask for: each imports much."""
    # Typer's rich help cuts long names of options at 80 columns.
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(_options)
    asked = [word for word in words[:1] if word in _COMMANDS]
    for name in asked or _COMMANDS:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    """Adds the subcommand in the module of its name, or one that refuses where what it needs is not installed."""
    try:
        command = _command(name.replace("-", "_"))
    except ImportError as error:
        if name not in _OF_THE_SERVER:
            raise
        any_words = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(name, context_settings=any_words)(_refusal(name, error.name or str(error)))
        return
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _command(name: str) -> Any:
    return getattr(importlib.import_module(f"shardcall.cli.{name}"), name)


def _refusal(name: str, missing: str) -> Callable[[], None]:
    def refuse() -> None:
        """It needs the extra `server`: pip install 'shardcall[server]'."""
        typer.echo(f"shardcall {name} needs {missing}: pip install 'shardcall[server]'", err=True)
        raise typer.Exit(1)

    return refuse


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shardcall {shardcall.__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    """Call sharded JAX kernels on another machine's device mesh."""
