"""The options of TLS that the subcommands share which ask a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Encrypted = Annotated[
    bool | None,
    typer.Option(
        "--tls/--no-tls",
        help="Encrypt, trusting whom the system trusts; or not, even where a token goes to another machine.",
    ),
]
CaCertificate = Annotated[
    Path | None,
    typer.Option(
        help="PEM file of the authority that made the server's certificate; turns TLS on. "
        "[env var: SHARDCALL_CA_CERTIFICATE]"
    ),
]
ClientCertificate = Annotated[
    Path | None, typer.Option(help="PEM file of a certificate of your own, where the server asks for one.")
]
ClientKey = Annotated[Path | None, typer.Option(help="PEM file of its key.")]
