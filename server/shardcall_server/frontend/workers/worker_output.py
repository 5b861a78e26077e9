"""The output of a worker process, read from a pipe, which becomes that of this one."""

from __future__ import annotations

import re
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import IO

# XLA compares hints for LLVM's instruction selection with the processor's features, among which they never are
# (openxla/xla#44565). Programs on disk are kept by processor, so that they run where they are loaded.
_MISLEADING = re.compile(rb"cpu_aot_loader\.cc:\d+\] .* feature \+prefer-no-(gather|scatter) is not +supported")
_MAX_LINE_BYTES = 64 << 10
_LAST_LINES_S = 1.0  # another process that has the worker's output open must not keep this one


class WorkerOutput:
    """Copies the lines that a worker process writes to this process's standard error, except misleading ones.

    Args:
        source: the reading end of a pipe; closed at its end.

    Attributes:
        last_line: the last line that is not empty; empty if there is none.
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.last_line = ""
        self._thread = threading.Thread(target=self._copy, name="worker output", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the last lines, after the process has ended."""
        self._thread.join(_LAST_LINES_S)

    def _copy(self) -> None:
        with self._source:
            for line in iter(partial(self._source.readline, _MAX_LINE_BYTES), b""):
                if _MISLEADING.search(line):
                    continue
                text = line.decode(errors="backslashreplace")
                self.last_line = text.strip() or self.last_line
                with suppress(OSError):  # the worker would wait if its output was not read
                    sys.stderr.write(text)
