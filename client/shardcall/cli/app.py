"""The subcommands, put together."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import shardcall
from shardcall.cli.health import health
from shardcall.cli.info import info
from shardcall.cli.status import status
from shardcall.cli.token import app as token

# typer keeps a copy of click to itself, and this is the one name of it that is public.
_UsageError: Any = typer.BadParameter.__base__


def run(words: Sequence[str]) -> None:
    """Runs the command with these words, and ends the process; errors are one plain line."""
    try:
        status = make_app()(words or ["--help"], prog_name="shardcall", standalone_mode=False)
    except _UsageError as error:
        where = error.ctx.command_path if error.ctx else "shardcall"
        typer.echo(f"shardcall: {error.format_message().rstrip('.')} (see: {where} --help)", err=True)
        status = error.exit_code
    sys.exit(status)


def make_app() -> typer.Typer:
    """Returns the command with its subcommands."""
    # Typer's rich help cuts long names of options at 80 columns.
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(_options)
    app.command("serve")(_of_the_server("serve"))
    app.command("worker")(_of_the_server("worker"))
    app.command("info")(info)
    app.command("health")(health)
    app.command("status")(status)
    app.add_typer(token, name="token")
    app.command("certificates")(_of_the_server("certificates"))
    return app


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


def _of_the_server(name: str) -> Callable[..., None]:
    """The subcommand in the module of its name; one that refuses where what it needs is not installed."""
    try:
        command: Callable[..., None] = getattr(importlib.import_module(f"shardcall.cli.{name}"), name)
    except ImportError as error:
        missing = error.name or str(error)

        def refuse() -> None:
            """It needs the extra `server`: pip install 'shardcall[server]'."""
            typer.echo(f"shardcall {name} needs {missing}: pip install 'shardcall[server]'", err=True)
            raise typer.Exit(1)

        return refuse
    return command
