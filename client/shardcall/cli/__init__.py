"""The ``shardcall`` command; it needs the extra ``cli``."""

from __future__ import annotations

import sys

_STARTED_TUNED = ("serve", "worker")


def main() -> None:
    """Runs the command."""
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
        sys.exit("the shardcall command needs more packages: pip install 'shardcall[cli]'")
    from shardcall.cli.app import run

    run(words)
