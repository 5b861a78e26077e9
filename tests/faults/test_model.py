"""A server under eight clients, kills and restarts, against a model that NumPy keeps."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pytest
from end_to_end.processes import wait_for
from faults.restarting import RestartingServer
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

CLIENTS = 8
DEVICES = 8
SIZES = (5, 8)  # one that no mesh divides
SPECS = (P("x", None), P(None, "x"))

Value = TypeVar("Value")

CLIENT = st.integers(0, CLIENTS - 1)
PICK = st.integers(0, 1 << 16)
SIZE = st.sampled_from(SIZES)


@dataclass(frozen=True)
class Kernel:
    """A kernel from square matrices of integers to such matrices, equal to NumPy's result bit for bit."""

    run: Callable[..., sc.Result]
    expected: Callable[..., np.ndarray]
    operands: int


KERNELS = {
    "diff": Kernel(
        lambda client, x, **options: client.diff(x, axis=0, prepend=0, **options),
        lambda x: np.diff(x, axis=0, prepend=0),
        1,
    ),
    "cumsum": Kernel(
        lambda client, x, **options: client.cumsum(x, axis=1, **options), lambda x: np.cumsum(x, axis=1), 1
    ),
    "transpose": Kernel(lambda client, x, **options: client.transpose(x, **options), np.transpose, 1),
    "add": Kernel(lambda client, x, y, **options: client.add(x, y, **options), np.add, 2),
    "matmul": Kernel(lambda client, x, y, **options: client.matmul(x, y, **options), np.matmul, 2),
}


@dataclass
class ModelArray:
    """An array on the mesh as the model knows it.

    Attributes:
        array: what a client has of it.
        values: what it must hold.
        there: whether it must be there; it must be lost otherwise.
    """

    array: sc.RemoteArray
    values: np.ndarray
    there: bool = True


class World:
    """The server and its clients, and what was done to them."""

    def __init__(self, server: RestartingServer, clients: list[sc.Client], mesh: sc.Mesh) -> None:
        self.server = server
        self.clients = clients
        self.mesh = mesh
        self.pool = ThreadPoolExecutor(CLIENTS)
        self.done: Counter[str] = Counter()

    def kill_worker(self) -> None:
        (worker,) = self.server.children()
        epoch = self.clients[0].server_info().epoch
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: worker not in self.server.children())
        wait_for(lambda: self._has_left(epoch))  # until then a deletion finds the arrays
        self.done["worker killed"] += 1

    def _has_left(self, epoch: int) -> bool:
        info = self.clients[0].server_info()
        return not info.ready or info.epoch != epoch

    def restart(self) -> None:
        self.server.kill()
        self.server.start()
        self.done["front end restarted"] += 1


@pytest.fixture
def world() -> Iterator[World]:
    with ExitStack() as stack:
        server = stack.enter_context(RestartingServer(devices=DEVICES))
        clients = [
            stack.enter_context(
                sc.connect(server.address, shared_memory=bool(i % 2), call_stream=bool(i // 2 % 2), connect_timeout=60)
            )
            for i in range(CLIENTS)
        ]
        yield World(server, clients, sc.Mesh(x=DEVICES))


class Model(RuleBasedStateMachine):
    """Operations that every client may do at any time, and their expected results."""

    world: World
    # Operations at least: the model is about what comes between them. Each run of the machine counts anew, so that it
    # does the same whenever Hypothesis replays it.
    between_kills, between_restarts = 40, 100

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[ModelArray] = []
        self.since_kill = self.since_restart = 0

    def count(self, what: str) -> None:
        self.world.done[what] += 1
        self.since_kill += 1
        self.since_restart += 1

    @rule(client=CLIENT, size=SIZE, seed=PICK, spec=st.sampled_from(SPECS))
    def put(self, client: int, size: int, seed: int, spec: sc.P) -> None:
        values = np.random.default_rng(seed).integers(-9, 9, (size, size))
        array = self.world.clients[client].put(values, mesh=self.world.mesh, spec=spec)
        self.kept.append(ModelArray(array, values))
        self.count("put")

    @rule(
        client=CLIENT, name=st.sampled_from(sorted(KERNELS)), size=SIZE, picks=st.tuples(PICK, PICK), keep=st.booleans()
    )
    def call(self, client: int, name: str, size: int, picks: tuple[int, int], keep: bool) -> None:
        kernel = KERNELS[name]
        operands = [self._operand(size, pick) for pick in picks[: kernel.operands]]
        arguments = [item.array if isinstance(item, ModelArray) else item for item in operands]

        def run() -> sc.Result:
            return kernel.run(self.world.clients[client], *arguments, mesh=self.world.mesh, keep=keep)

        self.count(name)
        if any(isinstance(item, ModelArray) and not item.there for item in operands):
            self._must_be_lost(run)
            return
        values = kernel.expected(*(item.values if isinstance(item, ModelArray) else item for item in operands))
        result = run()
        if keep:
            assert isinstance(result.array, sc.RemoteArray)
            self.kept.append(ModelArray(result.array, values))
        else:
            np.testing.assert_array_equal(result.array, values)

    @precondition(lambda self: self.kept)
    @rule(client=CLIENT, pick=PICK)
    def get(self, client: int, pick: int) -> None:
        item = self.kept[pick % len(self.kept)]
        self.count("get")
        if item.there:
            np.testing.assert_array_equal(self.world.clients[client].get(item.array), item.values)
        else:
            self._must_be_lost(lambda: self.world.clients[client].get(item.array))

    @precondition(lambda self: self.kept)
    @rule(client=CLIENT, pick=PICK)
    def delete(self, client: int, pick: int) -> None:
        item = self.kept[pick % len(self.kept)]
        assert self.world.clients[client].delete(item.array) == int(item.there)
        item.there = False
        self.count("delete")

    @rule(size=SIZE, seed=PICK, kill=st.booleans())
    def call_all_at_once(self, size: int, seed: int, kill: bool) -> None:
        """Every client calls; where the worker is killed meanwhile, some get an error, and none a wrong result."""
        kill = kill and self.since_kill >= self.between_kills
        values = np.random.default_rng(seed).integers(-9, 9, (CLIENTS, size, size))
        calls = [
            self.world.pool.submit(client.cumsum, values[i], axis=1, mesh=self.world.mesh)
            for i, client in enumerate(self.world.clients)
        ]
        if kill:
            self.world.kill_worker()
            self._lose_all()
        for i, call in enumerate(calls):
            try:
                np.testing.assert_array_equal(call.result(120).array, np.cumsum(values[i], axis=1))
            except sc.MeshRestartedError:
                assert kill
                self.world.done["failed by a restart"] += 1
        self.count("call of all clients at once")

    @precondition(lambda self: self.since_kill >= self.between_kills)
    @rule()
    def kill_worker(self) -> None:
        self.world.kill_worker()
        self._lose_all()

    @precondition(lambda self: self.since_restart >= self.between_restarts)
    @rule()
    def restart_front_end(self) -> None:
        self.world.restart()
        self._lose_all()
        self.since_restart = 0

    def teardown(self) -> None:
        """Checks every array once more: it is unchanged, or lost."""
        for item in self.kept:
            if item.there:
                np.testing.assert_array_equal(item.array.get(), item.values)
            else:
                self._must_be_lost(item.array.get)
        there = [item.array for item in self.kept if item.there]
        assert self.world.clients[0].usage().arrays == len(there)
        assert self.world.clients[0].delete(*there) == len(there)
        self.world.done["looked at again"] += len(self.kept)

    def _operand(self, size: int, pick: int) -> ModelArray | np.ndarray:
        """One of the arrays on the mesh, present or lost; values of the client's own where none has the size."""
        same_size = [item for item in self.kept if item.values.shape[0] == size]
        if same_size and pick % 4:
            return same_size[pick % len(same_size)]
        return np.random.default_rng(pick).integers(-9, 9, (size, size))

    def _lose_all(self) -> None:
        self.since_kill = 0
        for item in self.kept:
            item.there = False

    def _must_be_lost(self, use: Callable[[], Value]) -> None:
        with pytest.raises(sc.ArrayLostError):
            use()
        self.world.done["failed for a lost array"] += 1


def test_nothing_is_wrong_and_nothing_acknowledged_is_lost_within_an_epoch(world, figure):
    Model.world = world
    run_state_machine_as_test(
        Model,
        settings=settings(
            max_examples=50,
            stateful_step_count=200,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    figure("0 wrong, 0 lost of " + ", ".join(f"{count} × {what}" for what, count in sorted(world.done.items())))
