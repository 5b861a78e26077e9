"""A server that keeps files of arrays, and what its tests compare."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from servers import ServerProcess, running_server

import shardcall as sc
from shardcall_core.wire import token_file

LIMITS = ("--max-file-bytes", str(64 << 20), "--max-files", "6")


@dataclass
class Filing:
    """A server with a folder of files.

    Attributes:
        running: the server.
        folder: the folder of this user's files.
        client: a client of this user.
    """

    running: ServerProcess
    folder: Path
    client: sc.Client

    def files(self) -> list[str]:
        """Returns the paths of all files, hidden ones too."""
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if not path.is_dir())


@contextmanager
def filing_server(root: Path) -> Iterator[Filing]:
    """A server with a folder for files."""
    with (
        running_server("--array-dir", str(root), *LIMITS, why="its files are limited") as running,
        sc.connect(running.address) as client,
    ):
        yield Filing(running, root / token_file.user_name(), client)


@contextmanager
def without_files(shared: Filing) -> Iterator[Filing]:
    """The server, without files before and after a test."""
    shared.folder.mkdir(exist_ok=True)
    yield shared
    subprocess.run(["rm", "-rf", shared.folder], check=True)


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(sc.ShardcallError) as caught:
        call()
    return caught.value.reason
