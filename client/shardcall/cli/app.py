"""The subcommands, put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import shardcall
from shardcall.cli.health import health
from shardcall.cli.info import info


def make_app() -> typer.Typer:
    """Returns the command with its subcommands."""
    app = typer.Typer(no_args_is_help=True)
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
