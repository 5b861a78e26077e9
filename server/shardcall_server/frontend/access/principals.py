"""Principals and scopes."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class Scope(enum.StrEnum):
    """The permissions of a token."""

    RUN = "run"
    """Plan, compile and run kernels."""
    ARRAYS = "arrays"
    """Keep arrays on the mesh."""
    ADMIN = "admin"
    """See what all clients do: usage and profiles."""
    FILES = "files"
    """Save arrays in files of the server, and load them."""
    HOST = "host"
    """Join the mesh as a host, which sees every array and program."""


@dataclass(frozen=True)
class Principal:
    """An authenticated caller.

    Attributes:
        name: its name in logs and quotas.
        scopes: the scopes of its token.
        expires_s: the end of its token, in seconds since 1970.
        weight: its waiting calls that are launched for each one of a principal of weight 1.
    """

    name: str
    scopes: frozenset[Scope]
    expires_s: float = math.inf
    weight: int = 1
