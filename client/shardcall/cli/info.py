"""``shardcall info``: the description of a server."""

from __future__ import annotations

from functools import partial

from rich.table import Table

from shardcall.cli.connecting import Command, Connection, connecting
from shardcall.cli.output import AsJson, console, plain, print_json
from shardcall_core.types.server_info import ServerInfo


def _info(connection: Connection, as_json: AsJson = False) -> None:
    """Show a server's devices, limits and versions.

    `shardcall kernels` lists what it can compute.
    """
    with connection.open() as client:
        server = client.server_info(timeout=connection.timeout)
    if as_json:
        print_json({"address": connection.address, **description(server)})
    else:
        console().print(_table(connection.address, server))


def description(server: ServerInfo) -> dict[str, object]:
    """Returns a server's description for JSON."""
    return {**plain(server), "epoch": f"{server.epoch:016x}"}


def _table(address: str, server: ServerInfo) -> Table:
    table = Table(title=address, title_justify="left", show_header=False)
    for label, value in server.summary.items():
        table.add_row(label, value)
    return table


info: Command = partial(connecting, argument=True)(_info)
