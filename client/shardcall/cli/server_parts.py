"""The parts of the command that need the server's packages, by the entry points of this distribution."""

from __future__ import annotations

from importlib.metadata import distribution
from typing import Any

_GROUP = "shardcall.server"


def server_part(name: str) -> Any:
    """Returns the object of an entry point.

    Raises:
        ImportError: the server, or a package that it needs, is not installed.
    """
    for entry in distribution("shardcall").entry_points.select(group=_GROUP, name=name):
        return entry.load()
    raise ImportError(f"there is no {name} among the entry points {_GROUP}", name="shardcall_server")
