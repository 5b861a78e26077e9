"""Gives Python's threads their names in /proc, as Python does by itself from 3.14 on; see cpu_time.py.

Interpreters run it at their start where its folder is on PYTHONPATH.
"""

import contextlib
import threading
from pathlib import Path

_run = threading.Thread.run


def _named_run(thread: threading.Thread) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(thread.name[:15])
    _run(thread)


threading.Thread.run = _named_run  # type: ignore[method-assign, assignment]
