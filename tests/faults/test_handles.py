"""No handle ever shows other data, and memory stays flat: arrays that are copied, assigned to, deleted and dropped."""

from __future__ import annotations

import copy
import gc
import os
import random
import resource
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from servers import ServerProcess, running_server

import shardcall as sc

MESH = sc.Mesh(x=8)
SHAPE = (13, 4)


@pytest.fixture(scope="module")
def forgetful() -> Iterator[ServerProcess]:
    """A server whose mesh the tests end."""
    with running_server() as running:
        yield running


class Arrays:
    """Objects of two clients, and the values that each must show for as long as it shows any.

    Attributes:
        there: the objects with their values, and whether the mesh has lost them.
        handles: the handle of every array that there was, with its values.
    """

    def __init__(self, clients: list[sc.Client], seed: int) -> None:
        self.clients = clients
        self.random = random.Random(seed)
        self.there: list[tuple[sc.RemoteArray, np.ndarray, bool]] = []
        self.handles: dict[str, np.ndarray] = {}
        self.done: Counter[str] = Counter()

    def add(self, array: sc.RemoteArray, values: np.ndarray, lost: bool = False) -> None:
        self.there.append((array, values, lost))

    def do(self, what: str) -> None:
        self.done[what] += 1
        if what == "put" or not self.there:
            values = np.full(SHAPE, self.random.getrandbits(40)) + np.arange(4)
            self.add(self.random.choice(self.clients).put(values, mesh=MESH), values)
            return
        index = self.random.randrange(len(self.there))
        array, values, lost = self.there[index]
        if lost:  # with a program that needs it fail those of its results that need a dropped array
            self.settle()
        try:
            getattr(self, what)(index, array, values, lost)
        except (sc.ArrayLostError, sc.MeshRestartedError):
            assert lost
        if lost:  # the errors of calls that nobody waits for would be raised by the next read
            self.settle()

    def settle(self) -> None:
        for client in self.clients:
            with suppress(sc.ArrayLostError, sc.MeshRestartedError):
                client.synchronize()

    def share(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        self.add(
            self.random.choice([copy.copy, lambda h: copy.copy(h[...]), lambda h: copy.copy(h[0:13])])(array),
            values,
            lost,
        )

    def compute(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        number = self.random.getrandbits(20)
        self.add(array + number, values + number, lost)

    def assign(self, index: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        row, number = self.random.randrange(13), self.random.getrandbits(20)
        changed = values.copy()
        changed[row] = number
        array[row] = number
        self.there[index] = array, changed, lost

    def drop(self, index: int, *_: object) -> None:
        del self.there[index]
        gc.collect(0)

    def delete(self, index: int, array: sc.RemoteArray, *_: object) -> None:
        del self.there[index]
        array.delete()
        with pytest.raises(sc.ArrayLostError):
            array.get()

    def read(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        if not lost:
            self.handles[array.handle] = values
        shown = array.get()
        assert not lost
        np.testing.assert_array_equal(shown, values)

    def lose_all(self) -> None:
        self.there = [(array, values, True) for array, values, _ in self.there]

    def check(self) -> None:
        for index, item in enumerate(self.there):
            try:
                self.read(index, *item)
            except (sc.ArrayLostError, sc.MeshRestartedError):
                assert item[2]
        self.settle()
        for handle, values in self.handles.items():
            for client in self.clients:
                try:
                    np.testing.assert_array_equal(client.get(handle), values)
                except sc.ArrayLostError:
                    self.done["lost"] += 1
                else:
                    self.done["shown"] += 1


@pytest.mark.parametrize(
    ("seed", "count", "kills"), [(0, 120, 1), *(pytest.param(i, 3000, 4, marks=pytest.mark.long) for i in (1, 2, 3))]
)
def test_no_handle_shows_other_data(forgetful, figure, seed, count, kills):
    with (
        sc.connect(forgetful.address) as first,
        sc.connect(forgetful.address, shared_memory=False, fuse=True) as second,
    ):
        arrays = Arrays([first, second], seed)
        names = ["put", "share", "share", "compute", "assign", "drop", "delete", "read", "read"]
        ends = {count * (i + 1) // (kills + 1) for i in range(kills)}
        for number in range(count):
            if number in ends:
                for client in arrays.clients:
                    client.synchronize()
                end_mesh(forgetful)
                arrays.lose_all()
            arrays.do(arrays.random.choice(names))
        arrays.check()
        assert {*arrays.done} >= {*names, "lost", "shown"}
        figure(f"{count} operations on shared arrays and {kills} ends of the mesh: no handle showed other data")


def end_mesh(server: ServerProcess) -> None:
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: worker not in server.worker_pids())


def resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize() / 2**20


@pytest.mark.parametrize("count", [1000, pytest.param(100_000, marks=pytest.mark.long)])
def test_memory_stays_flat_while_arrays_are_created_and_dropped(forgetful, figure, count):
    with sc.connect(forgetful.address) as client:
        x = client.put(np.zeros(4096), mesh=MESH)

        def make(number: int) -> None:
            for i in range(number):
                h = x + float(i)
                if not i % 500:
                    assert float(h[0]) == i
            del h
            client.synchronize()
            gc.collect()
            wait_for(lambda: client.usage().arrays == 1)

        make(max(count // 10, 500))
        pids = [os.getpid(), forgetful.process.pid, *forgetful.worker_pids()]
        before = [resident_mib(pid) for pid in pids]
        make(count)
        grown = [resident_mib(pid) - mib for pid, mib in zip(pids, before, strict=True)]
        shown = ", ".join(f"{mib:.1f}" for mib in grown)
        figure(f"{count} arrays made and dropped: client, front end and worker have {shown} MiB more")
        # 3 KiB for each would be 300 MiB of 100,000.
        assert max(grown) < 40
