"""Counts the calls of Python functions in a process; see python_calls.py.

Interpreters run it at their start where its folder is on PYTHONPATH. Whoever connects to the Unix socket
``BENCHMARK_COUNTS/PID`` gets the counts since the start, as JSON. A resumed generator or coroutine counts as a
call, as for `sys.setprofile`; functions written in C do not count.
"""

import json
import os
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

_FOLDER = os.environ.get("BENCHMARK_COUNTS", "")
_by_thread: list[dict[CodeType, int]] = []


def _count_thread(frame: FrameType, event: str, argument: object) -> None:
    """Creates the counts of the current thread, which no other thread changes."""
    counts: dict[CodeType, int] = {}
    _by_thread.append(counts)

    def count(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            counts[frame.f_code] = counts.get(frame.f_code, 0) + 1

    sys.setprofile(count)
    count(frame, event, argument)


def _answer(listener: socket.socket) -> None:
    while True:
        connection, _ = listener.accept()
        total: Counter[str] = Counter()
        for counts in _by_thread.copy():
            for code, number in counts.copy().items():
                total[f"{code.co_filename}:{code.co_qualname}"] += number
        with connection:
            connection.sendall(json.dumps(total).encode())


if _FOLDER:
    _path = Path(_FOLDER, str(os.getpid()))
    _path.unlink(missing_ok=True)  # of this process before it executed itself again
    _listener = socket.socket(socket.AF_UNIX)
    _listener.bind(str(_path))
    _listener.listen()
    threading.Thread(target=_answer, args=[_listener], daemon=True).start()
    threading.setprofile(_count_thread)
    sys.setprofile(_count_thread)
