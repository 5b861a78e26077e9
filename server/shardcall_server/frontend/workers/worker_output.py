"""The output of a worker process, which becomes that of this one."""

from __future__ import annotations

import re
import sys
import threading
from typing import IO

# XLA compares hints for LLVM's instruction selection with the processor's features, among which they never are
# (openxla/xla#44565). Programs on disk are kept by processor, so that they run where they are loaded.
_MISLEADING = re.compile(rb"cpu_aot_loader\.cc:\d+\] .* feature \+prefer-no-(gather|scatter) is not +supported")
_LAST_LINES_S = 1.0  # another process that has the worker's output open must not keep this one


class WorkerOutput:
    """Copies the lines that a worker process writes to this process's standard error, except misleading ones.

    Args:
        source: the reading end of a pipe; closed at its end.
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._thread = threading.Thread(target=self._copy, name="worker output", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the last lines, after the process has ended."""
        self._thread.join(_LAST_LINES_S)

    def _copy(self) -> None:
        with self._source:
            for line in self._source:
                if not _MISLEADING.search(line):
                    sys.stderr.buffer.write(line)
                    sys.stderr.buffer.flush()
