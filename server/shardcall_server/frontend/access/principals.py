"""Who calls, and what they may do."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Scope(enum.StrEnum):
    """What a token allows."""

    RUN = "run"
    """Plan, compile and run kernels."""
    ARRAYS = "arrays"
    """Keep arrays on the mesh."""
    ADMIN = "admin"
    """Look at what all clients do: usage and profiles."""
    HOST = "host"
    """Be a host of the mesh: see every array and program."""


@dataclass(frozen=True)
class Principal:
    """Somebody whom the server knows.

    Attributes:
        name: what logs, metrics and quotas call them.
        scopes: what they may do.
    """

    name: str
    scopes: frozenset[Scope]
