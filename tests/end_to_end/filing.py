"""Servers that keep files of arrays, and what their tests compare."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from servers import ServerProcess, running_server

import shardcall as sc

_SUFFIXES = {".checkpoint", ".npy"}


class Restarting:
    """Servers one after another that have one folder of arrays.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stack = ExitStack()
        self.running: ServerProcess
        self.client: sc.Client

    def start(self, *flags: str, devices: int = 8) -> sc.Client:
        self.running = self._stack.enter_context(
            running_server("--array-dir", str(self.folder), *flags, devices=devices, why="it restarts")
        )
        self.client = self._stack.enter_context(sc.connect(self.running.address))
        return self.client

    def kill(self) -> None:
        """Ends the server at once, as a failure of its machine would."""
        self.running.process.send_signal(signal.SIGKILL)
        self.running.process.wait()

    def end(self) -> None:
        """Closes the client and has the server drain."""
        self._stack.close()

    def restart(self, *flags: str, devices: int = 8) -> sc.Client:
        self.kill()
        self.end()
        return self.start(*flags, devices=devices)

    def files(self) -> list[str]:
        """The files of checkpoints and their arrays."""
        return sorted(path.name for path in (self.folder / ".checkpoints").iterdir() if path.suffix in _SUFFIXES)


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
        return files_in(self.folder)


def files_in(folder: Path) -> list[str]:
    """Returns the paths of all files in a folder and those below it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(actual, expected, strict=True)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(sc.ShardcallError) as caught:
        call()
    return caught.value.reason


def read(path: Path) -> np.ndarray:
    """Reads a file as NumPy and zarr do."""
    if path.suffix == ".npy":
        return np.load(path)
    return np.asarray(pytest.importorskip("zarr").open_array(path, mode="r")[...])


def check_names_refused(filing: Filing, *names: str) -> None:
    """Checks that no call takes one of the names, and that no file has come to be."""
    client = filing.client
    for name in names:
        for call in (partial(client.save, client.put(np.ones(3))), client.load, client.remove_file):
            assert refused(partial(call, name)) == "INVALID_PARAMETER", name
    assert filing.files() == []
