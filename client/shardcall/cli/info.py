"""``shardcall info``: the description of a server and its kernels."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import shardcall
from shardcall._src.access.option_names import as_options
from shardcall._src.types.kernels import KernelTable
from shardcall._src.types.server_info import ServerInfo
from shardcall.cli.encryption import CaCertificate, ClientCertificate, ClientKey, Encrypted


def info(
    address: Annotated[str, typer.Argument(help='"host:port" or "unix:/path/to/socket"')] = "localhost:8470",
    timeout: Annotated[float, typer.Option(help="Seconds to wait for an answer.")] = 5.0,
    tls: Encrypted = None,
    ca_certificate: CaCertificate = None,
    client_certificate: ClientCertificate = None,
    client_key: ClientKey = None,
) -> None:
    """Show a server's devices, limits and kernels.

    From another machine, or as another user, the environment variable SHARDCALL_TOKEN gives the token.
    """
    try:
        connected = shardcall.connect(
            address,
            tls=tls,
            ca_certificate=ca_certificate,
            client_certificate=client_certificate,
            client_key=client_key,
            connect_timeout=timeout,
        )
        with connected as client:
            server, kernels = client.server_info(timeout=timeout), client.kernels(timeout=timeout)
    except shardcall.ShardcallError as error:
        typer.echo(f"shardcall: {as_options(str(error))}", err=True)
        raise typer.Exit(1) from None
    console = Console(highlight=False)
    console.print(_server_table(address, server))
    console.print(_kernel_table(kernels))


def _server_table(address: str, server: ServerInfo) -> Table:
    table = Table(title=address, title_justify="left", show_header=False)
    for label, value in server.summary.items():
        table.add_row(label, value)
    return table


def _kernel_table(kernels: KernelTable) -> Table:
    table = Table(title="kernels", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("kernel", "strategies", "summary"):
        table.add_column(name, overflow="fold")  # truncated names would be useless
    for kernel in kernels:
        strategies = ", ".join(strategy.name for strategy in kernel.strategies)
        table.add_row(kernel.signature, strategies, kernel.summary)
    return table
