"""The progress of long calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Phase: TypeAlias = Literal["upload", "compile", "download"]


@dataclass(frozen=True)
class Progress:
    """The progress of a call.

    Attributes:
        phase: "upload", "compile" or "download".
        done_bytes: the bytes moved in this phase; ``total_bytes`` at its end.
        total_bytes: the bytes to be moved in this phase; 0 for "compile".
        elapsed_s: seconds since the phase began.
    """

    phase: Phase
    done_bytes: int
    total_bytes: int
    elapsed_s: float


Listener: TypeAlias = Callable[[Progress], object]
