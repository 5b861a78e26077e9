"""Arrays in files of a server of two hosts, of which one shares no memory with it and opens the files by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from clusters import Cluster
from end_to_end.filing import same
from end_to_end.processes import wait_for

import shardcall as sc
from shardcall_core.wire import token_file

X = np.arange(35.0).reshape(7, 5)
NOT_SEEN = "the host h2 does not see the files.*mount the folder"


class Hosts:
    """A server of two hosts of four devices.

    Args:
        root: has the folder of arrays, and a link by which the second host sees it.
    """

    def __init__(self, root: Path) -> None:
        self.folder, self._seen = root / "arrays", root / "seen"
        self.show(self.folder)
        self.cluster = Cluster(2, ["--array-dir", str(self.folder)], {})
        try:
            self.cluster.start_agent("h1", "--devices", "4")
            self.cluster.start_agent("h2", "--devices", "4", "--no-shared-memory", "--array-dir", str(self._seen))
            self.cluster.wait_ready()
            self.client = sc.connect(self.cluster.address)
        except BaseException:
            self.cluster.end()
            raise

    def show(self, folder: Path) -> None:
        """Makes the second host see a folder."""
        self._seen.unlink(missing_ok=True)
        self._seen.symlink_to(folder)

    def kill_worker(self) -> None:
        """Ends the worker of the second host, and so the mesh."""
        for pid in self.cluster.agents["h2"].worker_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def restart_mesh(self, kill: Callable[[], None]) -> None:
        """Waits until the mesh after the one that a function ends answers."""
        restarts = self.client.usage().mesh.restarts
        kill()
        wait_for(lambda: self.client.usage().mesh.restarts > restarts and self.client.usage().mesh.ready)

    def end(self) -> None:
        self.client.close()
        self.cluster.end()

    @property
    def principal_folder(self) -> Path:
        """The folder of this user's files."""
        return self.folder / token_file.user_name()

    def checkpoint_files(self) -> list[Path]:
        """The files of arrays in checkpoints."""
        return list(self.folder.glob(".checkpoints/*.npy"))

    def files(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.principal_folder))
            for path in self.principal_folder.rglob("*")
            if not path.is_dir()
        )


@pytest.fixture(scope="module")
def hosts(tmp_path_factory) -> Iterator[Hosts]:
    running = Hosts(tmp_path_factory.mktemp("arrays"))
    yield running
    running.end()


def test_a_host_that_does_not_see_the_folder_is_named(hosts, tmp_path):
    """It has another folder, with a file of the same name."""
    client, before = hosts.client, X + 100
    client.save(client.put(before), "e.npy")
    listed, restarts = hosts.files(), client.usage().mesh.restarts
    (tmp_path / token_file.user_name()).mkdir()
    np.save(tmp_path / token_file.user_name() / "e.npy", X)
    hosts.show(tmp_path)
    calls = [lambda name=name: client.save(client.put(X), name) for name in ("e.npy", "f.npy", "f.zarr")]
    for call in [*calls, lambda: client.load("e.npy"), lambda: client.put(X, name="u", durable=True)]:
        with pytest.raises(sc.ShardcallError, match=NOT_SEEN) as error:
            call()
        assert (error.value.reason, error.value.metadata) == ("FILES_UNAVAILABLE", {"host": "h2"})
    assert hosts.files() == listed
    assert client.usage().mesh.restarts == restarts
    hosts.show(hosts.folder)
    same(client.load("e.npy").get(), before)
