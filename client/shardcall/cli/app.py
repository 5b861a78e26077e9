"""The subcommands, put together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

import shardcall
from shardcall.cli.health import health
from shardcall.cli.info import info

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
    app.command("serve")(_serve())
    app.command("info")(info)
    app.command("health")(health)
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


def _serve() -> Callable[..., None]:
    try:
        from shardcall.cli.serve import serve
    except ImportError as error:
        missing = error.name or str(error)

        def refuse() -> None:
            """Start a server. It needs the extra `server`: pip install 'shardcall[server]'."""
            typer.echo(f"shardcall serve needs {missing}: pip install 'shardcall[server]'", err=True)
            raise typer.Exit(1)

        return refuse
    return serve
