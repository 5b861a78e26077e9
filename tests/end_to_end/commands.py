"""Commands in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys


def shardcall(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "shardcall.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "COLUMNS": "200", **environment},
        stdin=subprocess.DEVNULL,
        check=False,
    )


def python(source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a program in Python to its end."""
    command = [sys.executable, "-c", source, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
