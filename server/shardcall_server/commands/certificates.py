"""``shardcall certificates``: TLS certificates of a server and its clients, by a private authority."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from shardcall_server.certificate_authority import CertificatesError, host_of, make_authority, renew

_LINES = """\
{folder} holds the authority (ca), and the certificates of a server and of a client, each with its key.

Serve:    shardcall serve --host 0.0.0.0 --tls-cert {folder}/server.pem --tls-key {folder}/server.key
          Add --tls-client-ca {folder}/ca.pem to let in only those who have a certificate.
Connect:  shardcall.connect("{host}:8470", ca_certificate="{folder}/ca.pem")
          Where clients need a certificate, add:
          client_certificate="{folder}/client.pem", client_key="{folder}/client.key"

Copy ca.pem to the clients, with client.pem and client.key where they need them. ca.key stays here: whoever has it can
impersonate the server. The certificates expire in {days} days; `shardcall certificates {folder} --renew` makes new
ones."""


def certificates(
    folder: Annotated[Path, typer.Argument(help="Folder for the files; created if it does not exist.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A name or address by which clients reach the server; may be repeated. localhost, 127.0.0.1 and ::1 "
            "are included.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(metavar="N", min=1, max=3650, help="Days until they expire.")] = 365,
    renew_: Annotated[
        bool, typer.Option("--renew", help="Make new certificates by the existing authority; servers reload them.")
    ] = False,
    force: Annotated[bool, typer.Option(help="Replace an existing authority.")] = False,
) -> None:
    """Make an authority for TLS, and its certificates."""
    hosts = host or []
    try:
        if renew_ and force:
            raise CertificatesError("--renew keeps the authority and --force replaces it; give one of them")
        if renew_:
            renew(folder, hosts, days)
        else:
            make_authority(folder, hosts, days, replace=force)
    except CertificatesError as error:
        typer.echo(f"shardcall: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(_LINES.format(folder=folder, host=host_of(folder / "server.pem") or "localhost", days=days))
