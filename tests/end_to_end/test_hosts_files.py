"""Arrays in files of a server of two hosts, of which one shares no memory with it and opens the files by itself."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from clusters import Cluster
from end_to_end.filing import files_in, same
from end_to_end.processes import repeated, wait_for
from rows import rows

import shardcall as sc
from shardcall import P
from shardcall_core.wire import token_file

pytestmark = pytest.mark.long

X = np.arange(35.0).reshape(7, 5)
LINE, GRID = sc.Mesh(x=8), sc.Mesh(x=4, y=2)
SECOND = sc.Mesh({"x": 4}, device_ids=[4, 5, 6, 7])
BOTH = sc.Mesh({"x": 2}, device_ids=[0, 4])
NOT_SEEN = "the host h2 does not see the files.*mount the folder"
PLACEMENTS = [
    (LINE, P("x", None)),
    (LINE, P(None, "x")),
    (GRID, P("x", "y")),
    (GRID, P("y", None)),
    (GRID, P(("y", "x"), None)),
    (LINE, P(None, None)),
    (SECOND, P("x", None)),
    (SECOND, P(None, None)),
    (BOTH, P(None, None)),
    (BOTH, P(None, "x")),
]


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
        return files_in(self.principal_folder)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory) -> Iterator[Hosts]:
    running = Hosts(tmp_path_factory.mktemp("arrays"))
    yield running
    running.end()


def test_every_sharding_is_saved_and_loaded(hosts):
    """Blocks of one host and of both, replicated ones, and shapes that the mesh does not divide."""
    zarr = pytest.importorskip("zarr")
    for number, (mesh, spec) in enumerate(PLACEMENTS):
        x, client = X + number, hosts.client
        h = client.put(x, mesh=mesh, spec=spec)
        for name in ("a.npy", "a.zarr"):
            client.save(h, name)
        same(np.load(hosts.principal_folder / "a.npy"), x)
        same(zarr.open_array(hosts.principal_folder / "a.zarr", mode="r")[:], x)
        np.save(hosts.principal_folder / "b.npy", np.asfortranarray(x * 2).astype(">f8"))
        loaded = client.load("b.npy", mesh=mesh, spec=spec)
        same(loaded.get(), x * 2)
        assert float(loaded.sum()) == x.sum() * 2  # padding is zero
        for name in ("a.npy", "a.zarr"):
            same(client.load(name, mesh=mesh, spec=spec).get(), x)
            same(client.load(name, mesh=GRID, spec=P(None, "y")).get(), x)
    assert not [name for name in hosts.files() if ".saving" in name]


def test_an_array_of_several_pieces_and_chunks(hosts):
    """The chunks divide the blocks, of 7,007 rows, so that no two hosts write one."""
    x = np.random.default_rng(2).random((14014, 700))
    for spec in (P("x", None), P(None, "x")):
        h = hosts.client.put(x, mesh=BOTH, spec=spec)
        for name in ("d.npy", "d.zarr"):
            hosts.client.save(h, name)
            same(hosts.client.load(name, mesh=BOTH, spec=spec).get(), x)
        same(np.load(hosts.principal_folder / "d.npy"), x)
        hosts.client.remove_file("d.zarr")


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


def test_a_checkpoint_and_a_file_outlive_a_worker_that_is_killed_while_it_saves(hosts):
    client, x = hosts.client, np.random.default_rng(3).random((4096, 2048))
    client.save(client.put(X), "g.npy")
    h = client.put(x, mesh=LINE, spec=P(None, "x"))
    named = [client.put(X, mesh=mesh, spec=spec, name=f"n{i}") for i, (mesh, spec) in enumerate(PLACEMENTS)]
    named += [client.put(np.float32(3), name="scalar"), client.put(np.zeros((0, 4)), name="empty")]
    numbers_written = itertools.count(1)

    def write() -> None:
        number = next(numbers_written)
        for array in named[:3]:
            array[...] = X + number

    with repeated(write):
        client.save_checkpoint()

    def kill() -> None:
        with ThreadPoolExecutor(1) as thread, suppress(sc.ShardcallError):  # it may be complete before
            saving = thread.submit(client.save, h, "g.npy")
            wait_for(lambda: any(".saving" in name for name in hosts.files()))
            hosts.kill_worker()
            saving.result()

    hosts.restart_mesh(kill)
    assert not any(".saving" in name for name in hosts.files())
    assert np.load(hosts.principal_folder / "g.npy").shape in (X.shape, x.shape)
    restored = [client.open(f"n{i}").get() for i in range(len(PLACEMENTS))]
    numbers = [int((array - X)[0, 0]) for array in restored[:3]]
    assert numbers[0] - numbers[2] in (0, 1)
    assert sorted(numbers, reverse=True) == numbers
    for array, number in zip(restored, [*numbers, *[0] * (len(PLACEMENTS) - 3)], strict=True):
        same(array, X + number)
    assert (client.open("scalar").get(), client.open("empty").shape) == (3, (0, 4))


def test_a_damaged_checkpoint_is_an_error_of_its_array_alone(hosts):
    """Its file ends within the blocks of the second host, so that the first can read all of its own."""
    client = hosts.client
    client.put(X, mesh=LINE, spec=P("x", None), name="whole", durable=True)
    client.put(X + 1, mesh=LINE, spec=P("x", None), name="damaged", durable=True)
    hosts.restart_mesh(hosts.kill_worker)
    restarts, damaged = client.usage().mesh.restarts, client.open("damaged")
    (file,) = [path for path in hosts.checkpoint_files() if np.array_equal(np.load(path), X + 1)]
    os.truncate(file, file.stat().st_size - X[0].nbytes)
    uses = [damaged.get, (damaged + 1).get, damaged[0].get, lambda: client.save(damaged, "i.npy")]
    for use in [*uses, *uses]:
        with pytest.raises(
            sc.ShardcallError, match=r"in a checkpoint.*not all as they were written.*put the array again"
        ) as error:
            use()
        assert error.value.reason == "FILE_DAMAGED"
    same((client.open("whole") + damaged.shape[0]).get(), X + 7)
    client.put(X + 2, mesh=LINE, spec=P("x", None), name="damaged", replace=True, durable=True)
    same(client.open("damaged").get(), X + 2)
    assert client.usage().mesh.restarts == restarts


@rows("name", ["h.npy", "h.zarr"])
def test_a_file_that_is_replaced_is_loaded_as_it_was_or_as_it_is(name, hosts):
    client = hosts.client
    arrays = [client.put(np.full((64, 40), number), mesh=LINE, spec=P("x", None)) for number in range(3)]
    client.save(arrays[0], name)
    replacements = itertools.cycle(arrays)
    with repeated(lambda: client.save(next(replacements), name)):
        for _ in range(30):
            try:
                assert len(np.unique(client.load(name, mesh=LINE, spec=P(None, "x")).get())) == 1
            except sc.ShardcallError as error:
                assert error.reason == "FILE_NOT_FOUND"  # noqa: PT017  # after four replacements in a row during one load


def test_checkpoints_wait_for_a_host_that_does_not_see_them(hosts, tmp_path):
    client = hosts.client
    client.put(X, mesh=LINE, spec=P("x", None), name="waiting", durable=True)
    hosts.show(tmp_path)
    hosts.restart_mesh(hosts.kill_worker)
    with pytest.raises(sc.ShardcallError, match=f"could not be restored.*{NOT_SEEN}"):
        client.open("waiting")
    restarts = client.usage().mesh.restarts
    hosts.show(hosts.folder)
    hosts.restart_mesh(hosts.kill_worker)
    assert client.usage().mesh.restarts == restarts + 1
    same(client.open("waiting").get(), X)


def test_checkpoints_outlive_the_server(tmp_path):
    before = Hosts(tmp_path)
    for number, (mesh, spec) in enumerate(PLACEMENTS):
        before.client.put(X + number, mesh=mesh, spec=spec, name=f"n{number}")
    before.client.save_checkpoint()
    before.cluster.process.kill()
    before.end()
    after = Hosts(tmp_path)
    try:
        for number, (mesh, spec) in enumerate(PLACEMENTS):
            array = after.client.open(f"n{number}")
            assert (array.mesh.axes, array.spec) == (mesh.axes, spec)
            same(array.get(), X + number)
            assert float(array.sum()) == (X + number).sum()
    finally:
        after.end()
