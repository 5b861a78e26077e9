"""Number of Python calls that a small call makes, in the client and in the front end, by function.

    python benchmarks/python_calls.py [--unary]

The calls of all threads count. Calls of idle processes are measured too and subtracted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from harness.asking import BENCHMARKS, Child, Server, client_environment, server
from harness.report import table

CALLS = 300
_FIRST_CALLS = 20
_SHOWN = 0.5
_PROJECT_MODULES = re.compile(r"/shardcall(_core|_server|_worker)?/")
ByFunction = Mapping[str, float]


def measure(transport: str) -> tuple[ByFunction, ByFunction]:
    """Returns the Python calls of a small call by function: those of the client, and those of the front end.

    Raises:
        LookupError: the client cannot make such calls.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = [str(BENCHMARKS / "harness" / "counted_calls"), os.environ.get("PYTHONPATH", "")]
        counted = {"PYTHONPATH": ":".join(filter(None, path)), "BENCHMARK_COUNTS": folder}
        with server(Path(folder), tuned=True, environment=counted) as running:
            client = Child(
                "peers.shardcall_client", running.address, environment={**client_environment(tuned=True), **counted}
            )
            try:
                return _of_calls(Path(folder), running, client, f"plain-{transport}")
            finally:
                client.stop()


def summary(transport: str) -> list[tuple[float, float]]:
    """Returns the Python calls in the client and in the front end: to the project's code, and to all."""
    try:
        measured = measure(transport)
    except LookupError as error:
        print(error, file=sys.stderr)
        return []
    return [(_project_calls(counts), sum(counts.values())) for counts in measured]


def _project_calls(counts: ByFunction) -> float:
    return sum(number for name, number in counts.items() if _PROJECT_MODULES.search(name))


def _of_calls(folder: Path, running: Server, client: Child, what: str) -> tuple[ByFunction, ByFunction]:
    def counts() -> list[Counter[str]]:
        return [_counts(folder / str(pid)) for pid in (client.pid, running.pid)]

    client.ask(what, _FIRST_CALLS)
    before, began = counts(), time.monotonic()
    answer = client.ask(what, CALLS)
    if "error" in answer:
        raise LookupError(f"{what}: {answer['error']}")
    after, took = counts(), time.monotonic() - began
    time.sleep(took)
    idle = counts()
    parts = zip(before, after, idle, strict=True)
    ours, theirs = ({name: (b[name] - a[name] - (c[name] - b[name])) / CALLS for name in b} for a, b, c in parts)
    return ours, theirs


def _counts(path: Path) -> Counter[str]:
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile() as lines:
        connection.connect(str(path))
        return Counter(json.load(lines))


def main() -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Counts the Python calls of a small call.")
    parser.add_argument("--unary", action="store_true", help="without a call stream")
    arguments = parser.parse_args()
    measured = measure("tcp-unary" if arguments.unary else "tcp")
    for process, counts in zip(("client", "front end"), measured, strict=True):
        rows = [[f"Python calls in the {process}", "a small call"], ["together", f"{sum(counts.values()):.1f}"]]
        rows.append(["of shardcall's modules", f"{_project_calls(counts):.1f}"])
        for name, number in sorted(counts.items(), key=lambda item: -item[1]):
            if number >= _SHOWN:
                path, function = name.rsplit(":", 1)
                rows.append([f"{'/'.join(Path(path).parts[-2:])} {function}", f"{number:.1f}"])
        print("\n".join([*table(rows), ""]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
