"""How far a call is that takes long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["upload", "compile", "download"]


@dataclass(frozen=True)
class Progress:
    """How far a call is.

    Attributes:
        phase: "upload", "compile" or "download".
        done_bytes: moved in this phase; equal to ``total_bytes`` at its end.
        total_bytes: to be moved in this phase; 0 for "compile".
        elapsed_s: seconds since the phase began.
    """

    phase: Phase
    done_bytes: int
    total_bytes: int
    elapsed_s: float


Listener: TypeAlias = Callable[[Progress], object]
