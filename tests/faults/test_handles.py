"""No handle ever shows other data: arrays that are copied, assigned to, used by other clients, deleted and dropped."""

import copy
import gc
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress

import numpy as np
import pytest
from servers import ServerProcess

import shardcall as sc

MESH = sc.Mesh(x=8)
SHAPE = (13, 4)  # which the mesh does not divide
SPECS = (sc.P("x", None), sc.P(None, "x"))
TRANSPORTS = (
    {},
    {"shared_memory": False},
    {"call_stream": False, "fuse": False},
    {"shared_memory": False, "call_stream": False},
)


class Arrays:
    """Objects of several clients, and the values that each must show for as long as it shows any.

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
            spec = self.random.choice(SPECS)
            self.add(self.random.choice(self.clients).put(values, mesh=MESH, spec=spec), values)
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

    def call(self, _: int, array: sc.RemoteArray, values: np.ndarray, lost: bool) -> None:
        """Any client calls with arrays of any two."""
        self.settle()  # no other client may use an array before it is there
        other, other_values, other_lost = self.random.choice(self.there)
        try:
            kept = self.random.choice(self.clients).add(array, other, mesh=MESH, keep=True).array
        except sc.ArrayLostError:
            assert lost or other_lost
        else:
            assert not lost
            assert not other_lost
            self.add(kept, values + other_values)

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


def operate(server: ServerProcess, seed: int, count: int, end_mesh: Callable[[sc.Client], None] | None = None) -> None:
    """Operates on arrays of several clients at random, and ends the mesh in between if there is a way to do so."""
    with ExitStack() as stack:
        clients = [stack.enter_context(sc.connect(server.address, **transport)) for transport in TRANSPORTS]
        arrays = Arrays(clients, seed)
        names = ["put", "share", "share", "compute", "call", "assign", "drop", "delete", "read", "read"]
        for number in range(1, count + 1):
            if end_mesh and number % (count // 6) == count // 12:  # and so not at the end, when all must be lost
                for client in clients:
                    client.synchronize()
                end_mesh(clients[0])
                arrays.lose_all()
            arrays.do(arrays.random.choice(names))
        arrays.check()
        assert {*arrays.done} >= {*names, "lost", "shown"}


def test_no_handle_shows_other_data(server):
    operate(server, seed=0, count=150)
