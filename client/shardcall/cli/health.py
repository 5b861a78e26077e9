"""``shardcall health``: the readiness of a server, for health checks of containers and services."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NoReturn, cast

import grpc
import typer

from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.exits import fail
from shardcall.cli.output import AsJson, print_json
from shardcall_core.access.channel import open_channel
from shardcall_core.access.handshake import explain, no_answer
from shardcall_core.access.option_names import as_options
from shardcall_core.types.errors import ShardcallError

# grpc.health.v1 by hand, to avoid a dependency: a request names a service in field 1, or nothing for the server; the
# answer is field 1, an enum whose value 1 is SERVING.
METHOD = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"
_LONGEST_NAME = 64


def _health(
    connection: Connection,
    host: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of a host of the mesh, to check instead of the server."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that a server is ready, or a host present.

    Exit status 0 if so, else 1, as health checks of containers require.
    """
    request = _request(host)
    try:
        where, encryption = connection.where, connection.encryption
        with open_channel(where, tls=encryption) as channel:
            check = channel.unary_unary(METHOD, request_serializer=bytes, response_deserializer=bytes)
            is_ready = check(request, timeout=connection.timeout) == SERVING
    except ShardcallError as error:
        fail(as_options(str(error)))
    except grpc.RpcError as error:
        _explain(error, connection, host)
    if as_json:
        print_json({"address": connection.address, "host": host, "ready": is_ready})
    else:
        typer.echo("ready" if is_ready else "not ready")
    raise typer.Exit(0 if is_ready else 1)


def _explain(error: grpc.RpcError, connection: Connection, host: str | None) -> NoReturn:
    call = cast("grpc.Call", error)
    if call.code() is grpc.StatusCode.NOT_FOUND:
        fail(f"the server at {connection.address} has had no host {host!r}; see: shardcall status")
    details = "timed out" if call.code() is grpc.StatusCode.DEADLINE_EXCEEDED else call.details() or ""
    why = as_options(explain(details, connection.where, connection.encryption))
    fail(why or no_answer(details, connection.where))


def _request(host: str | None) -> bytes:
    if host is None:
        return b""
    if not 0 < len(host.encode()) <= _LONGEST_NAME:
        raise typer.BadParameter(f"--host is {host[:80]!r}; a name has 1 to {_LONGEST_NAME} characters")
    service = f"hosts/{host}".encode()
    return b"\x0a" + bytes([len(service)]) + service


health: Command = partial(connecting, argument=True)(_health)
