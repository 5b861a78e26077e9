"""``shardcall health``: the readiness of a server, for health checks of containers and services."""

from __future__ import annotations

from typing import Annotated, cast

import grpc
import typer

from shardcall._src.access.addresses import parse_address
from shardcall._src.access.channel import open_channel
from shardcall._src.access.handshake import explain, no_answer
from shardcall._src.access.option_names import as_options
from shardcall._src.access.tls import find_tls
from shardcall._src.types.errors import ShardcallError
from shardcall.cli.encryption import CaCertificate, ClientCertificate, ClientKey, Encrypted

# grpc.health.v1 by hand, to avoid a dependency: a request names a service in field 1, or nothing for the server; the
# answer is field 1, an enum whose value 1 is SERVING.
_METHOD = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"
_LONGEST_NAME = 64


def health(
    address: Annotated[str, typer.Argument(help='"host:port" or "unix:/path/to/socket"')] = "localhost:8470",
    host: Annotated[
        str | None, typer.Option(help="The name of a host of the mesh, to check instead of the server.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 5.0,
    tls: Encrypted = None,
    ca_certificate: CaCertificate = None,
    client_certificate: ClientCertificate = None,
    client_key: ClientKey = None,
) -> None:
    """Check that a server is ready, or a host present. Exit status 0 if so, 1 if not."""
    try:
        where = parse_address(address)
        encryption = find_tls(where, tls, ca_certificate, client_certificate, client_key)
        with open_channel(where, tls=encryption) as channel:
            check = channel.unary_unary(_METHOD, request_serializer=bytes, response_deserializer=bytes)
            answer = check(_request(host), timeout=timeout)
    except ShardcallError as error:
        typer.echo(f"shardcall: {as_options(str(error))}", err=True)
        raise typer.Exit(1) from None
    except grpc.RpcError as error:
        if cast("grpc.Call", error).code() is grpc.StatusCode.NOT_FOUND:
            typer.echo(f"shardcall: the server at {address} has had no host {host!r}; see: shardcall status", err=True)
            raise typer.Exit(1) from None
        silent = cast("grpc.Call", error).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        details = "timed out" if silent else cast("grpc.Call", error).details() or ""
        why = as_options(explain(details, where, encryption)) or no_answer(details, where)
        typer.echo(f"shardcall: {why}", err=True)
        raise typer.Exit(1) from None
    typer.echo("ready" if answer == _SERVING else "not ready")
    raise typer.Exit(0 if answer == _SERVING else 1)


def _request(host: str | None) -> bytes:
    if host is None:
        return b""
    if not 0 < len(host.encode()) <= _LONGEST_NAME:
        raise typer.BadParameter(f"--host is {host[:80]!r}; a name has 1 to {_LONGEST_NAME} characters")
    service = f"hosts/{host}".encode()
    return b"\x0a" + bytes([len(service)]) + service
