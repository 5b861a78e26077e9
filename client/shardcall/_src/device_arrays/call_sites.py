"""The lines of the caller's code that calls come from, as errors and summaries of traces name them."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

_PACKAGES = ("shardcall", "shardcall_core", "numpy")
_COMPOSED = "shardcall.namespace."  # the functions that make several calls
_MAX_FRAMES = 8  # of the caller


class Line(NamedTuple):
    """A line of the caller's code.

    Attributes:
        file: the file.
        number: the number of the line.
    """

    file: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}:{self.number}"


def line_of_caller() -> Line:
    """Returns the line outside this package and NumPy that the present call comes from."""
    frame = frame_of_caller()
    return Line(frame.f_code.co_filename, frame.f_lineno)


def call_site() -> tuple[Hashable, Line]:
    """Returns the position of the present call in the caller's code, including its callers, and its line.

    The calls that a function of several calls makes, such as `median`, have different positions.
    """
    site: list[int] = []
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_internal(module := frame.f_globals.get("__name__", "")):
        if module.startswith(_COMPOSED):
            site += (id(frame.f_code), frame.f_lasti)
        frame = frame.f_back
    line = Line(frame.f_code.co_filename, frame.f_lineno)
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
