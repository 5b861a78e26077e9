"""Arrays in files of a server, and what its tests compare."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from servers import ServerProcess

import shardcall as sc
from shardcall_core.wire import token_file


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
def files_of(server: ServerProcess) -> Iterator[Filing]:
    """The files of a shared server, of which there are none before and after a test."""
    assert server.log is not None
    folder = server.log.with_suffix("") / token_file.user_name()
    folder.mkdir(exist_ok=True)
    with sc.connect(server.address) as client:
        yield Filing(server, folder, client)
    shutil.rmtree(folder)


def read(path: Path) -> np.ndarray:
    """Returns the array of a file, read by NumPy or by zarr."""
    if path.suffix == ".npy":
        return np.asarray(np.load(path))
    return np.asarray(pytest.importorskip("zarr").open_array(path, mode="r")[...])


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(sc.ShardcallError) as caught:
        call()
    return caught.value.reason
