"""The TLS options of subcommands that connect to a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Connection"
"""The group of options in the help."""

Encrypted = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls",
        help="Encrypt, trusting the system's authorities; or do not, even to send a token to another machine.",
        rich_help_panel=PANEL,
    ),
]
CaCertificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="PEM file of the authority that made the server's certificate; turns TLS on. "
        "[env var: SHARDCALL_CA_CERTIFICATE]",
        rich_help_panel=PANEL,
    ),
]
ClientCertificate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="PEM file of a client certificate, if the server requires one.", rich_help_panel=PANEL
    ),
]
ClientKey = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM file of its key.", rich_help_panel=PANEL)]
