"""The positions of calls in the caller's code."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import lru_cache
from types import FrameType

_PACKAGES = ("shardcall", "shardcall_core", "numpy")
_MAX_FRAMES = 8


def line_of_caller() -> str:
    """Returns the file and line outside this package and NumPy that the present call comes from."""
    frame = frame_of_caller()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def call_site() -> tuple[Hashable, tuple[str, int]]:
    """Returns the position of the present call in the caller's code, including its callers, and its file and line."""
    frame = frame_of_caller()
    line = frame.f_code.co_filename, frame.f_lineno
    site: list[int] = []
    outer: FrameType | None = frame
    for _ in range(_MAX_FRAMES):
        if outer is None:
            break
        site += (id(outer.f_code), outer.f_lasti)
        outer = outer.f_back
    return tuple(site), line


def frame_of_caller() -> FrameType:
    """Returns the frame outside this package and NumPy that the present call comes from."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _is_internal(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    return frame


@lru_cache(maxsize=1024)
def _is_internal(module: str) -> bool:
    return module.partition(".")[0] in _PACKAGES
