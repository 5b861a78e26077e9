"""A durable counter through kills of the worker and of the server: every answer is right or refused."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest
from end_to_end.processes import wait_for
from faults.restarting import RestartingServer

import shardcall as sc

pytestmark = pytest.mark.long

KILLS, SERVER_KILL_EVERY = 10, 5
ACCEPTED = {"ARRAY_LOST", "MESH_RESTARTED", "MESH_NOT_READY", "FILES_UNAVAILABLE", ""}  # "": the server is not there


class Counter:
    """A counter on the mesh, and the values that it may have as far as its client knows.

    Attributes:
        possible: its values: several if a write was not answered.
        saved: those that the last checkpoint may have.
        answers: the number of calls that were answered.
        refusals: the number of refusals since a restart took back values.
    """

    def __init__(self, client: sc.Client) -> None:
        self._client = client
        self._array = client.put(np.zeros(2), name="n", durable=True)
        self.possible, self.saved = {0.0}, {0.0}
        self.answers = self.refusals = 0

    def _write(self, write: Callable[[], object]) -> None:
        before = self.possible
        self.possible = before | {value + 1 for value in before}
        write()
        self.possible = {value + 1 for value in before}

    def add(self) -> None:
        self._write(lambda: self._array.__iadd__(1))

    def add_to_view(self) -> None:
        self._write(lambda: self._array[::-1].__iadd__(1))

    def replace(self) -> None:
        self.read()
        (value,) = self.possible
        self.possible = {value, value + 1}
        self._array = self._client.put(np.full(2, value + 1), name="n", replace=True)
        self.possible = {value + 1}

    def read(self) -> None:
        first, second = self._array.get().tolist()
        assert first == second
        assert first in self.possible
        self.possible = {first}

    def save(self) -> None:
        self.saved |= self.possible
        self._client.save_checkpoint()
        self.saved = {*self.possible}

    def do(self, action: Callable[[], None]) -> bool:
        """Makes a call, and goes on from the checkpoint if it says so; returns whether it was answered."""
        if (error := error_of(action)) is None:
            self.answers += 1
            return True
        assert error.reason in ACCEPTED, error
        assert "no array has the name" not in str(error)  # the name stays, whatever its values
        if "went back to the checkpoint" in str(error):
            self.refusals += 1
            opened = []
            wait_for(lambda: bool(opened) or error_of(lambda: opened.append(self._client.open("n").get()[0])) is None)
            self.possible = {float(opened[0])}
            assert self.possible <= self.saved
        return False


class Reader:
    """Another client of the counter, for which it never goes back unless that is refused."""

    def __init__(self, client: sc.Client) -> None:
        self._client = client
        self.answers = 0
        self.open()

    def open(self) -> None:
        self._array = self._client.open("n")
        self.value = float(self._array.get()[0])

    def read(self) -> None:
        value = float(self._array.get()[0])
        assert value >= self.value
        self.value = value
        self.answers += 1


def error_of(call: Callable[[], object]) -> sc.ShardcallError | None:
    try:
        call()
    except sc.ShardcallError as error:
        return error
    return None


def kill(server: RestartingServer, number: int) -> None:
    if number % SERVER_KILL_EVERY == 0:
        server.kill()
        server.start()
    else:
        with sc.connect(server.address) as client:
            restarts = client.usage().mesh.restarts
            for pid in server.running.worker_pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_for(lambda: client.usage().mesh.restarts > restarts)


def test_every_answer_of_a_durable_counter_is_right_or_refused_through_kills(tmp_path, figure):
    draws = np.random.default_rng(0)
    with (
        RestartingServer("--array-dir", str(tmp_path / "arrays")) as server,
        sc.connect(server.address) as client,
        sc.connect(server.address) as other,
        ThreadPoolExecutor(1) as thread,
    ):
        counter = Counter(client)
        actions = [counter.add, counter.add_to_view, counter.add, counter.replace, counter.read, counter.save]
        reader = Reader(other)
        for number in range(1, KILLS + 1):
            for _ in range(draws.integers(10, 60)):
                counter.do(actions[draws.integers(len(actions))])
                error_of(reader.read)
            killed = thread.submit(kill, server, number)
            while not killed.done():  # some of these meet the end
                counter.do(actions[draws.integers(len(actions))])
            killed.result()
            wait_for(lambda: counter.do(counter.read))
            reader.open()
            assert reader.value in counter.possible
    figure(f"a durable counter: {counter.answers} answers and {reader.answers} reads of another client right")
    assert counter.answers > 10 * KILLS
    assert counter.refusals > KILLS / 4
