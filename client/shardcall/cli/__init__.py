"""The ``shardcall`` command; it needs the extra ``cli``."""

from __future__ import annotations

import os
import sys

_STARTED_TUNED = ("serve", "worker")


def main() -> None:
    """Runs the command."""
    # The command says itself why a handshake failed. Where a program imports the client, gRPC's log is that program's.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    words = sys.argv[1:]
    if words and words[0] in _STARTED_TUNED:
        try:
            from shardcall_server.launcher import ensure_environment_early
        except ImportError:
            pass  # the command says that it needs the server
        else:
            ensure_environment_early(words)
    try:
        import typer  # noqa: F401 - only asked whether it is there
    except ImportError:
        extra = "server" if words and words[0] in _STARTED_TUNED else "cli"
        sys.exit(f"the shardcall command needs more packages: pip install 'shardcall[{extra}]'")
    from shardcall.cli.app import run

    run(words)
