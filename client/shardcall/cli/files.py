"""``shardcall save``, ``load``, ``files`` and ``checkpoint``: arrays of the mesh in files of the server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from shardcall._src.services.saved_files import described
from shardcall.cli import texts
from shardcall.cli.arrays import KeepFor, show_kept
from shardcall.cli.call_arguments import MeshText
from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.exits import CommandError, usage_error
from shardcall.cli.handles import find_array
from shardcall.cli.output import AsJson, console, print_json
from shardcall_core.types.sizes import human

_FileText = Annotated[str, typer.Argument(metavar="FILE", help="The name of the file: runs/a.npy or runs/a.zarr.")]


def _save(
    connection: Connection,
    array: Annotated[
        str, typer.Argument(metavar="ARRAY", help="A name, a handle or its first digits, as shardcall ls lists them.")
    ],
    file: _FileText,
    as_json: AsJson = False,
) -> None:
    """Save an array of the mesh in a file of the server."""
    with connection.open() as client:
        saved = client.save(find_array(client, array), file)
    if as_json:
        print_json(described([saved])[0])
    else:
        typer.echo(f"{saved.type} ({human(saved.nbytes)}) to {saved.name}")


def _load(
    connection: Connection,
    file: _FileText,
    mesh: MeshText = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="x,-", help="The sharding; without it the first axis over all mesh axes."),
    ] = None,
    keep_for: KeepFor = 3600.0,
    as_json: AsJson = False,
) -> None:
    """Put an array on the mesh from a file of the server.

    It stays as those of shardcall put.
    """
    target_mesh = None if mesh is None else texts.parse_mesh(mesh)
    sharding = None if spec is None else texts.parse_spec(spec)
    with connection.open() as client:
        array = client.load(file, mesh=target_mesh, spec=sharding)
        client._remote_arrays.outlive([array], keep_for, client._deadline(connection.timeout))
        show_kept([array], as_json=as_json)


def _checkpoint(
    connection: Connection,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Names whose arrays are saved; without any all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Save arrays with names; they outlive restarts."""
    with connection.open() as client:
        saved = client.save_checkpoint(*(names or ()))
    if as_json:
        print_json({"time": saved.time.isoformat(), "names": list(saved.names), "bytes": saved.nbytes})
    else:
        when = saved.time.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        typer.echo(f"{len(saved.names)} arrays ({human(saved.nbytes)}) of {when}")


def _files(
    connection: Connection,
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="The beginning of the names: runs/.")] = "",
    removed: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="FILE", help="Remove a file instead; give it once for each file."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the files of this token's principal, or remove some."""
    if removed:
        if prefix:
            raise usage_error(f"{prefix!r} is the beginning of names to list; give it without --remove")
        _remove(connection, removed, as_json=as_json)
        return
    with connection.open() as client:
        files = client.files(prefix)
    if as_json:
        print_json(described(files))
        return
    table = Table()
    for name in ("name", "type", "bytes", "modified"):
        table.add_column(name, overflow="fold")
    for file in files:
        table.add_row(*file.texts)
    console().print(table if files else "there are no files")


def _remove(connection: Connection, names: Sequence[str], *, as_json: bool) -> None:
    with connection.open() as client:
        absent = [name for name in names if not client.remove_file(name)]
    if as_json:
        print_json({"removed": len(names) - len(absent)})
    else:
        typer.echo(f"removed {len(names) - len(absent)}")
    if absent:
        raise CommandError(f"there were no files {', '.join(absent)}")


checkpoint: Command = connecting(_checkpoint)
save: Command = connecting(_save)
load: Command = connecting(_load)
files: Command = connecting(_files)
