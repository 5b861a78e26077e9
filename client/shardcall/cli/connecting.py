"""The options of subcommands that connect to a server."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

import shardcall
from shardcall.cli.encryption import PANEL, CaCertificate, ClientCertificate, ClientKey, Encrypted
from shardcall.cli.exits import plain_errors, usage_error
from shardcall.client import Client
from shardcall_core.access.addresses import Address, default_address, parse_address
from shardcall_core.access.tls import Tls, find_tls

Command: TypeAlias = Callable[..., None]
"""A subcommand: Typer reads its options from its signature."""

_FORMS = '"host:port" or "unix:/path/to/socket"'
_DEFAULT = "[env var: SHARDCALL_ADDRESS; default: localhost:8470]"

_Argument = Annotated[str | None, typer.Argument(metavar="ADDRESS", help=f"The server: {_FORMS} {_DEFAULT}")]
_Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help=f"The server: {_FORMS} {_DEFAULT}", rich_help_panel=PANEL),
]
_Timeout = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.001, help="Longest wait for the first answer.", rich_help_panel=PANEL)
]
_OPTIONS: dict[str, tuple[Any, Any]] = {
    "address": (_Address, None),
    "timeout": (_Timeout, 5.0),
    "tls": (Encrypted, None),
    "ca_certificate": (CaCertificate, None),
    "client_certificate": (ClientCertificate, None),
    "client_key": (ClientKey, None),
}
"""The annotation and the default of each option."""


@dataclass(frozen=True)
class Connection:
    """The server of a subcommand and how to reach it."""

    address: str
    timeout: float
    tls: bool | None = None
    ca_certificate: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None

    @property
    def where(self) -> Address:
        """The parsed address."""
        return parse_address(self.address)

    @property
    def encryption(self) -> Tls | None:
        """The TLS of the connection; None for a plain one."""
        return find_tls(self.where, self.tls, self.ca_certificate, self.client_certificate, self.client_key)

    def open(self, *, admin: bool = False) -> Client:
        """Connects.

        Args:
            admin: show this user's token with all scopes.
        """
        return shardcall.connect(
            self.address,
            tls=self.tls,
            ca_certificate=self.ca_certificate,
            client_certificate=self.client_certificate,
            client_key=self.client_key,
            connect_timeout=self.timeout,
            admin=admin,
        )


def connecting(command: Command, *, argument: bool = False) -> Command:
    """Returns a subcommand that has the options of a connection, and reports errors in one line.

    Args:
        command: takes a `Connection` first.
        argument: accept the address also as an argument.
    """
    parameters_of_command = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    by_name = inspect.Parameter.KEYWORD_ONLY
    first = [inspect.Parameter("server", by_name, default=None, annotation=_Argument)] if argument else []
    last = [inspect.Parameter(n, by_name, default=value, annotation=about) for n, (about, value) in _OPTIONS.items()]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        with plain_errors():
            server, address = values.pop("server", None), values.pop("address")
            if server and address:
                raise usage_error(f"the address is given twice, {server} and --address {address}; give it once")
            chosen = server or address or default_address()
            options = {name: values.pop(name) for name in _OPTIONS if name != "address"}
            command(Connection(chosen, **options), **values)

    parameters = [*first, *(p.replace(kind=by_name) for p in parameters_of_command), *last]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
