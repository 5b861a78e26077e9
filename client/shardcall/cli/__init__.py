"""The ``shardcall`` command; it needs the extra ``cli``, except for ``--version``, and says which extra is missing."""

from __future__ import annotations

import os
import sys

from shardcall.cli.server_parts import server_part
from shardcall.cli.version_text import version_text

_STARTED_TUNED = ("serve", "worker")


def main() -> None:
    """Runs the command."""
    # The command explains failed handshakes itself; a program that imports the client sees gRPC's log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(version_text())
        return
    if arguments and arguments[0] in _STARTED_TUNED:
        try:
            prepare = server_part("environment")
        except ImportError:
            pass  # the command says that it needs the server
        else:
            prepare(arguments)
    try:
        import typer  # noqa: F401 - checks that it is installed
    except ImportError:
        extra = "server" if arguments and arguments[0] in (*_STARTED_TUNED, "demo") else "cli"
        sys.exit(f"the shardcall command needs more packages: pip install 'shardcall[{extra}]'")
    from shardcall.cli.app import run

    run(arguments)
