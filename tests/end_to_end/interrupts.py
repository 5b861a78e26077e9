"""Interrupts at chosen lines of the client, as Ctrl-C raises them anywhere."""

import linecache
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shardcall

_CLIENT = str(Path(shardcall.__file__).parent) + os.sep


class _Interrupt:
    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: Any, event: str, argument: object) -> Any:
        return self._at if frame.f_code.co_filename.startswith(_CLIENT) else None

    def _at(self, frame: Any, event: str, argument: object) -> Any:
        # The line of a `with` comes again at the end of its block, where Python handles no signal.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip()
        if event == "line" and not line.startswith("with "):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self._at


def interrupted(function: Callable[[], object], number: int) -> bool:
    """Runs a function and interrupts it; returns whether it was.

    Args:
        function: the function.
        number: the number of the line that is not run, among those of the client that this thread runs.
    """
    before = sys.gettrace()
    sys.settrace(_Interrupt(number))
    try:
        function()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
