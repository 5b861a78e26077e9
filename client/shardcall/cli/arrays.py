"""``shardcall put``, ``get``, ``ls``, ``rm``, ``share`` and ``unshare``: arrays that stay between commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from shardcall._src.device_arrays.array_table import ListedArray, duration
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.services.passed_arrays import Handle
from shardcall.cli import texts
from shardcall.cli.array_files import STREAM, ArraySource, save
from shardcall.cli.call_arguments import MeshText
from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.exits import CommandError, status_of, usage_error
from shardcall.cli.handles import SHOWN_DIGITS, find_array
from shardcall.cli.output import AsJson, console, plain, print_json
from shardcall.client import Client
from shardcall_core.access.option_names import as_options
from shardcall_core.types import arrays
from shardcall_core.types.errors import ArrayLostError
from shardcall_core.types.sizes import human

_KEEP_S = 3600.0
_COLUMNS = ("type", "mesh", "spec", "on the devices", "age", "ends in")  # behind the names

_ArrayText = Annotated[
    str,
    typer.Argument(metavar="ARRAY", help="Its name, or its handle, or first digits of that."),
]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of an array of this principal.")]
KeepFor = Annotated[
    float, typer.Option("--keep-for", metavar="SECONDS", min=1.0, help="How long an array stays on the mesh.")
]
_Out = Annotated[
    Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write an npy file; - is standard output.")
]


def _put(
    connection: Connection,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An npy file, FILE.npz[NAME], or - for standard input.")],
    mesh: MeshText = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="x,-", help="The sharding; without it the first axis over all mesh axes."),
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="A name that commands and programs take.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Remove another array that has the name.")] = False,
    durable: Annotated[bool, typer.Option("--durable", help="Write it to the server's disk, too.")] = False,
    keep_for: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=1.0,
            show_default=False,
            help="How long it stays on the mesh: without it an hour, and with --name until it is removed.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put an array on the mesh, where it stays.

    It stays until --keep-for is over, it is removed, or the mesh restarts. Calls take it as @HANDLE or @NAME: shardcall
    call sum @3f2a91
    """
    if (replace or durable) and name is None:
        raise usage_error(f"{'--replace' if replace else '--durable'} is of a name; give --name, too")
    keep_s = (_KEEP_S if name is None else 0.0) if keep_for is None else keep_for
    (value,) = ArraySource().read(file, max_count=1)
    target_mesh = None if mesh is None else texts.parse_mesh(mesh)
    sharding = None if spec is None else texts.parse_spec(spec)
    with connection.open() as client:
        there = client.put(
            value, mesh=target_mesh, spec=sharding, keep_for=keep_s, name=name, replace=replace, durable=durable
        )
        show_kept([there], as_json=as_json)


def show_kept(kept: Sequence[RemoteArray], *, as_json: bool) -> None:
    """Prints arrays that stay on the mesh: on a terminal with their types, else their handles alone."""
    if as_json:
        entries = [_entry(array) for array in kept]
        print_json(entries[0] if len(entries) == 1 else entries)
        return
    for array in kept:
        if sys.stdout.isatty():
            console().print(f"{array.handle}  {array.type} on {array.mesh.short} as {array.spec}", markup=False)
        else:
            typer.echo(array.handle)


def _get(connection: Connection, array: _ArrayText, out: _Out = None) -> None:
    """Copy an array from the mesh to a file or a pipe."""
    if out is None and sys.stdout.isatty():
        raise usage_error("standard output is a terminal; give --out FILE, or a pipe")
    with connection.open() as client:
        value = client.get(find_array(client, array))
    save([value], out)
    if out is not None and str(out) != STREAM:
        typer.echo(f"{arrays.type_of(value)} ({human(value.nbytes)}) to {out}")


def _ls(connection: Connection, as_json: AsJson = False) -> None:
    """List the arrays that are on the mesh.

    They are those of this token's principal, also those of its programs that run, and those that other principals share
    with it, as PRINCIPAL/NAME.
    """
    with connection.open() as client:
        listed = client.list(of_all_clients=True)
        held = [_listed_entry(array, entry) for array, entry in zip(listed, listed.entries, strict=True)]
    if as_json:
        print_json(held)
        return
    is_shared = any(array.guests for array in listed.entries)
    table = Table()
    for name in ("handle", "name", *["shared with"] * is_shared, *_COLUMNS):
        table.add_column(name, overflow="fold")
    for array, entry in zip(listed.entries, held, strict=True):
        placed = entry["type"], entry["mesh_text"], entry["spec_text"], human(entry["device_bytes"])
        times = duration(array.age_s), "" if array.expires_in_s is None else duration(array.expires_in_s)
        guests = [", ".join(map(str, array.guests))] * is_shared
        table.add_row(array.handle[:SHOWN_DIGITS], array.name, *guests, *placed, *times)
    console().print(table if held else "there are no arrays on the mesh")


def _rm(
    connection: Connection,
    array_texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARRAY", help="Their names, or their handles, or first digits of these."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All arrays of this principal, those of its running programs too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove arrays from the mesh."""
    if bool(array_texts) == everything:
        raise usage_error("give names or handles, or --all")
    with connection.open() as client:
        if everything:
            listed = client.list(of_all_clients=True)
            named: Sequence[Handle] = [
                array.handle for array in listed if "/" not in (array.name or "")
            ]  # those of others
        else:
            named = _all_of(client, array_texts or [])
        count = sum(client.delete(*named[first : first + 1000]) for first in range(0, len(named), 1000))
    if as_json:
        print_json({"removed": count})
    else:
        typer.echo(f"removed {count}")
    if count < len(named) and not everything:
        raise CommandError(
            f"{len(named) - count} of {len(named)} arrays were not on the mesh, or are another principal's"
        )


def _all_of(client: Client, array_texts: Sequence[str]) -> list[Handle]:
    """Returns arrays that are to be removed together.

    Raises:
        CommandError: if there is no array of one of the texts, or there are several.
    """
    try:
        return [find_array(client, text) for text in array_texts]
    except CommandError as error:
        message, status = str(error), error.status
    except ArrayLostError as error:
        message, status = as_options(str(error)), status_of(error)
    raise CommandError(f"{message}; nothing was removed", status)


def _share(
    connection: Connection,
    name: _Name,
    with_: Annotated[str, typer.Option("--with", metavar="PRINCIPAL", help="Whom to share it with.")],
    write: Annotated[bool, typer.Option("--write", help="Let the other principal write to it, too.")] = False,
) -> None:
    """Share a named array with another principal.

    It is PRINCIPAL/NAME there, and stays shared until shardcall unshare, or until it is removed.
    """
    with connection.open() as client:
        client.share(name, with_=with_, write=write)


def _unshare(
    connection: Connection,
    name: _Name,
    with_: Annotated[
        str | None, typer.Option("--with", metavar="PRINCIPAL", help="The other principal; without it, all.")
    ] = None,
) -> None:
    """Share a named array no longer."""
    with connection.open() as client:
        client.unshare(name, with_=with_)


def _entry(array: RemoteArray) -> dict[str, Any]:
    return {
        "handle": array.handle,
        "name": array.name,
        "type": str(array.type),
        "mesh": plain(array.mesh),
        "spec": plain(array.spec),
        "device_bytes": array.device_bytes,
        "mesh_text": str(array.mesh.short),
        "spec_text": str(array.spec),
    }


def _listed_entry(array: RemoteArray, listed: ListedArray) -> dict[str, Any]:
    return {
        **_entry(array),
        "owner": listed.owner,
        "guests": [{"principal": guest.principal, "write": guest.write} for guest in listed.guests],
        "age_s": listed.age_s,
        "expires_in_s": listed.expires_in_s,
        "in_checkpoint": listed.in_checkpoint,
        "suspect": listed.suspect,
    }


put: Command = connecting(_put)
get: Command = connecting(_get)
ls: Command = connecting(_ls)
rm: Command = connecting(_rm)
share: Command = connecting(_share)
unshare: Command = connecting(_unshare)
