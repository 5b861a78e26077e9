"""``shardcall client-config``: the configuration of clients of this user's server."""

from __future__ import annotations

import json
import os
import shlex
from typing import Annotated

import typer

from shardcall.cli.encryption import CaCertificate
from shardcall_core.access.addresses import ADDRESS_VARIABLE, USUAL_ADDRESS, parse_address
from shardcall_core.access.option_names import as_options
from shardcall_core.access.tls import CA_VARIABLE, find_tls
from shardcall_core.types.errors import ShardcallError
from shardcall_core.wire import token_file


def client_config(
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", envvar=ADDRESS_VARIABLE, help='The "host:port" by which clients reach the server.'
        ),
    ] = USUAL_ADDRESS,
    principal: Annotated[
        str | None, typer.Option(metavar="NAME", help="The principal of the token; by default this user.")
    ] = None,
    ca_certificate: CaCertificate = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object instead of shell commands.")] = False,
) -> None:
    """Print the address, authority and token for clients.

    The output sets environment variables: eval "$(shardcall client-config)". It holds a secret.
    """
    try:
        tls = find_tls(parse_address(address), ca_certificate=ca_certificate)
        token = _token(principal)
    except (ShardcallError, token_file.TokenFileError) as error:
        typer.echo(f"shardcall: {as_options(str(error))}", err=True)
        raise typer.Exit(1) from None
    authority = tls.authority.decode() if tls and tls.authority else None
    if as_json:
        typer.echo(json.dumps({"address": address, "ca_certificate": authority, "token": token}, indent=2))
        return
    typer.echo("# Afterwards, in Python: shardcall.connect(); commands: shardcall info")
    typer.echo(f"export {ADDRESS_VARIABLE}={shlex.quote(address)}")
    typer.echo(f"export {token_file.TOKEN_VARIABLE}={shlex.quote(token)}")
    if authority:
        typer.echo(f"export {CA_VARIABLE}={shlex.quote(authority)}")


def _token(principal: str | None) -> str:
    """Returns the token of a principal, by default of this user.

    Raises:
        TokenFileError: if the file cannot be used, or does not name the principal.
    """
    if principal is None and (only := os.environ.get(token_file.TOKEN_VARIABLE)):
        return only
    path = os.environ.get(token_file.FILE_VARIABLE) or token_file.usual_path()
    try:
        entries = token_file.read(path)
    except FileNotFoundError:
        raise token_file.TokenFileError(
            f"there is no token file {path}; start the server first, or name its file by {token_file.FILE_VARIABLE}"
        ) from None
    entry = token_file.user_entry(entries) if principal is None else token_file.entry_of(entries, principal)
    return entry.token
