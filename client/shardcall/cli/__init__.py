"""The ``shardcall`` command; it needs the extra ``cli``."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command."""
    try:
        import typer  # noqa: F401 - only asked whether it is there
    except ImportError:
        sys.exit("the shardcall command needs more packages: pip install 'shardcall[cli]'")
    from shardcall.cli.app import run

    run(sys.argv[1:])
