"""``shardcall token``: the tokens of this user's servers."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from shardcall.cli.help_layout import GroupedCommand, GroupedCommands
from shardcall.cli.output import AsJson, print_json
from shardcall_core.access.addresses import ADDRESS_VARIABLE, default_address
from shardcall_core.access.session import user_addresses
from shardcall_core.types.errors import ShardcallError
from shardcall_core.wire import token_file
from shardcall_core.wire.token_fields import (
    FieldError,
    PrincipalLimits,
    TokenFields,
    parse_count,
    parse_duration,
    parse_expiry,
    parse_size,
    parse_weight,
    texts_of_limits,
    time_text,
)
from shardcall_core.wire.token_file import Entry, TokenFileError

token = typer.Typer(help="Show and change the tokens of this user's servers.", cls=GroupedCommands)

_File = Annotated[
    str,
    typer.Option(
        "--token-file",
        metavar="FILE",
        envvar=token_file.FILE_VARIABLE,
        help="The file; the usual one is shardcall/token in the user's state folder.",
    ),
]


_Expires = Annotated[
    str,
    typer.Option(metavar="TIME", help="The end of the token: 90m, 12h, 30d, 8w, 2027-01-31T00:00:00Z, or never."),
]


@token.callback(invoke_without_command=True)
def overview(context: typer.Context, file: _File = "") -> None:
    """Show the file and its principals, and on a terminal how this user connects from elsewhere."""
    if context.invoked_subcommand is None:
        with _plain_errors():
            path, entries = _read(file)
            _show_token(path, token_file.user_entry(entries))
            for entry in entries:
                typer.echo(f"{entry.name}: {', '.join(entry.scopes)}")


@token.command(cls=GroupedCommand)
def show(
    name: Annotated[str, typer.Argument(help="The principal; this user's own if left out.")] = "",
    admin: Annotated[bool, typer.Option("--admin", help="This user's token with all scopes.")] = False,
    file: _File = "",
) -> None:
    """Print a token and nothing else, also to pipes."""
    with _plain_errors():
        if name and admin:
            raise TokenFileError("--admin is this user's own token; leave out NAME, or --admin")
        path, entries = _read(file)
        if admin:
            entries = _read_file(token_file.admin_path(path))
        entry = token_file.entry_of(entries, name) if name else token_file.user_entry(entries)
        typer.echo(entry.token)


@token.command(cls=GroupedCommand)
def add(
    name: Annotated[str, typer.Argument(help="The name of the principal in logs and quotas.")],
    scopes: Annotated[
        str,
        typer.Option(
            metavar="SCOPES",
            help="Its scopes, separated by commas: run, arrays, files, admin; host alone for `shardcall worker`.",
        ),
    ] = "run,arrays",
    expires: _Expires = "never",
    max_bytes: Annotated[
        str, typer.Option(metavar="BYTES", help="The limit of its arrays on the devices, such as 8GiB.")
    ] = "",
    max_arrays: Annotated[str, typer.Option(metavar="N", help="The limit of its arrays in number.")] = "",
    max_file_bytes: Annotated[str, typer.Option(metavar="BYTES", help="The limit of its files, such as 64GiB.")] = "",
    weight: Annotated[
        str, typer.Option(metavar="N", help="Its waiting calls for each one of a principal of weight 1, 1 to 100.")
    ] = "1",
    file: _File = "",
) -> None:
    """Add a principal, and show its token on a terminal.

    Servers know it within a second.
    """
    scope_names = [scope.strip() for scope in scopes.split(",")]
    with _plain_errors():
        if not token_file.is_name(name):
            raise TokenFileError(
                f"{name[:80]!r} is no name of a principal; give 1 to 64 letters, digits and ._@-, a letter or digit "
                "first"
            )
        if not token_file.are_scopes(scope_names):
            raise TokenFileError(f"scopes are {scopes[:80]!r}; give one or more of {', '.join(token_file.SCOPES)}")
        fields = TokenFields(
            parse_expiry("--expires", expires, _now()),
            PrincipalLimits(
                parse_size("--max-bytes", max_bytes) if max_bytes else None,
                parse_count("--max-arrays", max_arrays) if max_arrays else None,
                parse_size("--max-file-bytes", max_file_bytes) if max_file_bytes else None,
                parse_weight("--weight", weight),
            ),
        )
        path, entries = _read(file)
        if any(entry.name == name for entry in entries):
            raise TokenFileError(f"there is a principal {name} already; choose another name, or remove it first")
        entry = Entry.make(name, scope_names, fields)
        token_file.replace(path, [*entries, entry])
        _show_token(path, entry)


@token.command(cls=GroupedCommand)
def remove(name: Annotated[str, typer.Argument(help="The principal.")], file: _File = "") -> None:
    """Remove a principal.

    Servers refuse its token within a second.
    """
    with _plain_errors():
        path, entries = _read(file)
        removed = token_file.entry_of(entries, name)
        kept = [entry for entry in entries if entry is not removed]
        if not kept:
            raise TokenFileError(f"{name} is the only principal; add another first")
        token_file.replace(path, kept)
        typer.echo(f"removed {name}")


@token.command("list", cls=GroupedCommand)
def list_(as_json: AsJson = False, file: _File = "") -> None:
    """List the principals: scopes, expiry and limits, but no tokens."""
    with _plain_errors():
        path, entries = _read(file)
        rows = [(path, entry) for entry in entries]
        admin = token_file.admin_path(path)
        with suppress(FileNotFoundError):
            rows += [(admin, entry) for entry in token_file.read(admin)]
        if as_json:
            print_json([_record(*row) for row in rows])
            return
        for row in rows:
            typer.echo(_line(*row))


@token.command(cls=GroupedCommand)
def rotate(
    name: Annotated[str, typer.Argument(help="The principal.")] = "",
    admin: Annotated[bool, typer.Option("--admin", help="This user's token with all scopes.")] = False,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="The time for which the old token stays valid: 90m, 12h, 30d, 8w.")
    ] = "",
    expires: Annotated[
        str,
        typer.Option(metavar="TIME", help="The end of the new token, as of token add; that of the old if left out."),
    ] = "",
    file: _File = "",
) -> None:
    """Replace the token of a principal.

    Shows the new one on a terminal. Servers refuse the old one within a second, or after --grace.
    """
    with _plain_errors():
        if bool(name) == admin:
            raise TokenFileError("give the NAME of a principal, or --admin for this user's token with all scopes")
        now, grace_time = _now(), parse_duration("--grace", grace) if grace else timedelta()
        path, entries = _read(file)
        if admin:
            path = token_file.admin_path(path)
            entries = _read_file(path)
        old = token_file.entry_of(entries, name) if name else token_file.user_entry(entries)
        new = old.rotate(now, grace_time)
        if expires:
            fields = dataclasses.replace(new.fields, expires=parse_expiry("--expires", expires, now))
            new = dataclasses.replace(new, fields=fields)
        token_file.replace(path, [new if entry is old else entry for entry in entries])
        _show_token(path, new)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _record(path: str, entry: Entry) -> dict[str, Any]:
    """Returns what may be shown of a principal."""
    fields = entry.fields
    return {
        "name": entry.name,
        "file": os.path.basename(path),
        "scopes": list(entry.scopes),
        "expires": time_text(fields.expires) if fields.expires else None,
        "expired": bool(fields.expires and fields.expires <= _now()),
        "previous_expires": time_text(fields.previous.expires) if fields.previous else None,
        **dataclasses.asdict(fields.limits),
    }


def _line(path: str, entry: Entry) -> str:
    """Returns the line of a principal: its name, scopes, expiry and limits."""
    record, parts = _record(path, entry), [", ".join(entry.scopes)]
    if record["expires"]:
        parts.append(f"{'EXPIRED at' if record['expired'] else 'expires'} {record['expires']}")
    if record["previous_expires"]:
        parts.append(f"the token before is valid until {record['previous_expires']}")
    return f"{entry.name} ({record['file']}): {'; '.join([*parts, *texts_of_limits(entry.fields.limits)])}"


def _read(file: str) -> tuple[str, Sequence[Entry]]:
    """Returns the path of the file and its entries; creates a missing file."""
    path = file or token_file.usual_path()
    if not path:
        raise TokenFileError("this user has no home for a token file; name a file by --token-file")
    token_file.create_missing(path)
    return path, _read_file(path)


def _read_file(path: str) -> Sequence[Entry]:
    try:
        return token_file.read(path)
    except FileNotFoundError:
        raise TokenFileError(f"the token file {path} leads nowhere; remove it for a new one") from None


def _show_token(path: str, entry: Entry) -> None:
    """Prints a token on a terminal only: others may read the file or log that standard output goes to."""
    is_host = "host" in entry.scopes and "run" not in entry.scopes
    if not is_terminal():
        typer.echo(f"{path} holds the token of {entry.name}; print it with: shardcall token show {entry.name}")
    elif is_host:
        typer.echo(f"{path} holds the token of {entry.name}; where `shardcall worker --join` runs:")
        typer.echo(f"export {token_file.TOKEN_VARIABLE}={entry.token}")
    else:
        _show_use(path, entry)


def _show_use(path: str, entry: Entry) -> None:
    """Prints how to connect with a token, for each server of this user that runs."""
    running = user_addresses()
    typer.echo(f"{path} holds the token of {entry.name}; connect with:")
    for address in running or [default_address()]:
        typer.echo(f'shardcall.connect("{address}", token="{entry.token}")')
    if not running:
        typer.echo("No server of this user runs on this machine; start one with: shardcall serve")
    typer.echo("For commands, and for programs that call shardcall.connect():")
    typer.echo(f"export {ADDRESS_VARIABLE}={(running or [default_address()])[0]}")
    typer.echo(f"export {token_file.TOKEN_VARIABLE}={entry.token}")


def is_terminal() -> bool:
    """Returns whether a person sees what is printed."""
    return sys.stdout.isatty()


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except (TokenFileError, FieldError, ShardcallError) as error:
        typer.echo(f"shardcall: {error}", err=True)
        raise typer.Exit(1) from None
