"""``shardcall cache``: compiled programs on this machine's disk, and why a call is compiled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from shardcall.cli import call_arguments
from shardcall.cli.array_files import TypeSource
from shardcall.cli.call_arguments import CallArguments, Kernel, MeshText, OutSpecTexts, SpecTexts, Strategy
from shardcall.cli.connecting import Connection, connecting
from shardcall.cli.exits import CommandError, plain_errors, usage_error
from shardcall.cli.help_layout import GroupedCommand, GroupedCommands
from shardcall.cli.output import AsJson, console, print_json
from shardcall.cli.plan import OperandTypes
from shardcall.cli.server_parts import server_part
from shardcall_core.types.sizes import human

cache = typer.Typer(
    help="Show and remove compiled programs.", rich_markup_mode=None, no_args_is_help=True, cls=GroupedCommands
)

_DAY_S = 86400.0
CacheFolder = Annotated[
    str,
    typer.Option("--cache-dir", metavar="FOLDER", envvar="SHARDCALL_CACHE_DIR", help="That of the server."),
]


@cache.callback()
def _cache() -> None:
    """Show and remove the compiled programs that servers of this user keep on this machine."""


@cache.command(cls=GroupedCommand)
def ls(cache_dir: CacheFolder = "", as_json: AsJson = False) -> None:
    """List compiled programs, and the calls that came most."""
    with plain_errors():
        folder = _folder(cache_dir)
        programs, history = _files().stored_programs(folder), _files().counted_calls(folder)
    total = sum(program.nbytes for program in programs)
    if as_json:
        print_json({"folder": folder, "programs": programs, "bytes": total, "calls": history})
        return
    shown = console()
    ages = f", used last {_age(max(program.used for program in programs))} ago" if programs else ""
    shown.print(f"{folder}: {len(programs)} compiled programs, {human(total)}{ages}", markup=False, soft_wrap=True)
    if history:
        table = Table(title="calls that came most; the next start loads their programs first", title_justify="left")
        for name in ("call", "devices", "count", "used"):
            table.add_column(name, overflow="fold")
        for item in history:
            table.add_row(item.call, item.devices, f"{item.count:.4g}", f"{_age(item.used)} ago")
        shown.print(table)


@cache.command(cls=GroupedCommand)
def rm(
    cache_dir: CacheFolder = "",
    older_than: Annotated[
        float, typer.Option("--older-than", metavar="DAYS", min=0, help="Only those not used for so many days.")
    ] = 0.0,
    everything: Annotated[bool, typer.Option("--all", help="Remove all programs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove compiled programs from the disk.

    Servers that run keep what they have loaded.
    """
    with plain_errors():
        if everything == bool(older_than):
            raise usage_error("give --older-than DAYS, or --all")
        folder = _folder(cache_dir)
        before = time.time() - older_than * _DAY_S
        removed = _files().remove_programs(folder, before if older_than else None)
    nbytes = sum(program.nbytes for program in removed)
    if as_json:
        print_json({"folder": folder, "removed": len(removed), "bytes": nbytes})
    else:
        typer.echo(f"removed {len(removed)} programs, {human(nbytes)}, from {folder}")


def _why(
    connection: Connection,
    kernel: Kernel,
    operands: OperandTypes = None,
    mesh: MeshText = None,
    spec: SpecTexts = None,
    out_spec: OutSpecTexts = None,
    strategy: Strategy = call_arguments.AUTO,
    as_json: AsJson = False,
) -> None:
    """Explain why a call was compiled.

    Says whether the server had its program, and if not, which part of the key is new. The server compiles it then, so
    that a second answer is "cached".
    """
    request = CallArguments.parse(kernel, operands or [], mesh, spec, out_spec, strategy, TypeSource())
    with connection.open() as client:
        request = request.resolved(client)
        plan = client.plan(kernel, *request.operands, **request.options, **request.keywords)
    outcome = "cached" if plan.cache_hit else "loaded from disk" if plan.from_disk else "compiled now"
    if as_json:
        print_json(
            {"outcome": outcome, "explanation": plan.explanation, "key": plan.key, "key_digest": plan.key_digest}
        )
        return
    shown = console()
    shown.print(f"{outcome}: {plan.explanation or 'the key is in the cache'}", markup=False, soft_wrap=True)
    table = Table(title=f"key {plan.key_digest[:16]}", title_justify="left", show_header=False)
    for label, value in plan.key.items():
        table.add_row(label, value)
    shown.print(table)


cache.command(name="why", cls=GroupedCommand)(connecting(_why))


def _files() -> Any:
    """Returns the server's module of the files.

    Raises:
        CommandError: if the server is not installed.
    """
    try:
        return server_part("cache")
    except ImportError:
        raise CommandError("a cache is where a server is installed: pip install 'shardcall[server]'") from None


def _folder(cache_dir: str) -> Path:
    folder = Path(cache_dir or _files().default_cache_dir())
    if not folder.is_dir():
        raise CommandError(f"there is no cache folder {folder}; a server makes it, or name another by --cache-dir")
    return folder


def _age(moment: float) -> str:
    seconds = max(0.0, time.time() - moment)
    for name, size in (("days", _DAY_S), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"
