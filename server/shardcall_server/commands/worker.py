"""``shardcall worker``: a host of a server's mesh."""

from __future__ import annotations

import platform
import re
import signal
import socket
from contextlib import suppress
from functools import partial
from typing import Annotated, get_args

import typer

from shardcall.cli.encryption import CaCertificate, ClientCertificate, ClientKey, Encrypted
from shardcall_core.access.addresses import Address, parse_address
from shardcall_core.access.option_names import as_options
from shardcall_core.access.tls import find_tls
from shardcall_core.access.token import find_token
from shardcall_core.types.errors import ShardcallError
from shardcall_core.wire.private_files import PrivateFileError
from shardcall_server.agent.agent import Agent, AgentRefusedError, AgentSettings
from shardcall_server.agent.host_addresses import address_towards
from shardcall_server.compilation.program_store import private_program_dir
from shardcall_server.frontend.hosts.names import HOST_NAME, HOST_NAME_RULE
from shardcall_server.launcher import ensure_environment
from shardcall_server.log_setup import configure_logging
from shardcall_server.setting_groups import LogLevel, default_cache_dir
from shardcall_server.standard_streams import stop_signals

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]")


def worker(
    join: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help='The address for hosts, "host:port": the server and its --hosts-port.'),
    ],
    devices: Annotated[
        int,
        typer.Option(metavar="N", min=0, max=512, help="Virtual CPU devices of this host; 0 takes the platform's own."),
    ] = 0,
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The name of this host; empty for the machine's name.", envvar="SHARDCALL_NAME"
        ),
    ] = "",
    address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="The address of this host for the others; empty for the one from which it reaches the server.",
        ),
    ] = "",
    cache_dir: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="Folder for compiled programs; empty for none.",
            envvar="SHARDCALL_CACHE_DIR",
            show_default="of this user",
        ),
    ] = default_cache_dir(),
    array_dir: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            help="The folder of the server's --array-dir as this host sees it, see docs/hosts.md; empty for none.",
            envvar="SHARDCALL_ARRAY_DIR",
        ),
    ] = "",
    shared_memory: Annotated[bool, typer.Option(help="Share memory with a server of this user on this host.")] = True,
    log_level: Annotated[
        str, typer.Option(metavar="LEVEL", help="Least level logged: debug, info, warning or error.")
    ] = "info",
    tls: Encrypted = None,
    ca_certificate: CaCertificate = None,
    client_certificate: ClientCertificate = None,
    client_key: ClientKey = None,
) -> None:
    """Make this machine a host of a server's mesh. A server takes hosts with --hosts.

    From another machine, or as another user, the environment variable SHARDCALL_TOKEN gives a token of scope host.
    """
    ensure_environment()
    try:
        if log_level not in get_args(LogLevel):
            raise _UsageError(f"--log-level is {log_level!r}; give {', '.join(get_args(LogLevel))}")
        configure_logging(log_level)
        if platform.system() != "Linux":
            raise _UsageError(f"a host of a mesh needs Linux, and this is {platform.system()}")
        server = _parse_join(join)
        if name and not HOST_NAME.fullmatch(name):
            raise _UsageError(f"--name is {name!r}; give {HOST_NAME_RULE}")
        encryption = find_tls(server, tls, ca_certificate, client_certificate, client_key)
        find = partial(find_token, server, None, encrypted=encryption is not None or tls is False, admin=True)
        find()  # reports an invalid environment early
        if not address:
            _check_reachable(server)
        settings = AgentSettings(
            server=server,
            tls=encryption,
            find_token=find,
            name=name or _NOT_IN_A_NAME.sub("-", socket.gethostname())[:64],
            address=address.strip("[]"),
            devices=devices,
            program_dir=private_program_dir(cache_dir),
            array_dir=array_dir,
            shared_memory=shared_memory,
            log_level=log_level,
        )
        agent = Agent(settings)
        for number in stop_signals():
            signal.signal(number, lambda *_: agent.stop())
        agent.run()
    except (ShardcallError, AgentRefusedError, PrivateFileError, _UsageError) as error:
        typer.echo(f"shardcall: {as_options(str(error))}", err=True)
        raise typer.Exit(2) from None


class _UsageError(Exception):
    """An invalid option."""


def _parse_join(join: str) -> Address:
    with suppress(ShardcallError):
        if not (server := parse_address(join)).is_socket:
            return server
    raise _UsageError(f"--join is {join!r}; give host:port, such as server:8471")


def _check_reachable(server: Address) -> None:
    try:
        address_towards(server)
    except OSError as error:
        raise _UsageError(
            f"the server {server.host!r} cannot be reached ({error.strerror or error}); check --join, or give this "
            "host's --address"
        ) from None
