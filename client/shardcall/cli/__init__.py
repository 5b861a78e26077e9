"""The ``shardcall`` command; it needs the extra ``cli``."""

from __future__ import annotations

import contextlib
import sys

_STARTED_TUNED = ("serve", "worker")


def main() -> None:
    """Runs the command."""
    words = sys.argv[1:]
    if words[:1] and words[0] in _STARTED_TUNED:
        with contextlib.suppress(ImportError):  # without the server, the command says what it needs
            from shardcall_server.launcher import ensure_environment_early

            ensure_environment_early(words)
    try:
        import typer  # noqa: F401 - only asked whether it is there
    except ImportError:
        sys.exit("the shardcall command needs more packages: pip install 'shardcall[cli]'")
    from shardcall.cli.app import run

    run(words)
