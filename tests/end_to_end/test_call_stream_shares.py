"""Shares of a server that call streams take: call slots, places in the queue of the mesh, and threads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import ServerProcess, running_server
from end_to_end.messages import SMALL_WINDOW, call, open_channel
from end_to_end.processes import left_empty, until
from faults.raw_call_stream import RawCallStream, cancel, prepare, reason, result, run

import shardcall as sc

X = np.arange(8.0) ** 2
COLUMN, ROW = np.arange(256.0)[:, None], np.arange(256.0)[None, :]
TABLE = COLUMN + ROW  # 512 KiB
FLAGS = ("--max-concurrent-calls", "2", "--max-streamed-bytes", str(1 << 20))


@pytest.fixture(scope="module")
def narrow_server() -> Iterator[ServerProcess]:
    """A server with one call slot for each client."""
    with running_server(*FLAGS, devices=1, log=Path(os.devnull)) as running:
        yield running


@pytest.fixture
def narrow(narrow_server: ServerProcess) -> Iterator[ServerProcess]:
    with left_empty(narrow_server) as server:
        yield server


@contextmanager
def stalled(server: ServerProcess, count: int) -> Iterator[RawCallStream]:
    """A stream whose client reads nothing after its first answers, with as many calls of large results."""
    with open_channel(server.address, SMALL_WINDOW) as channel, RawCallStream(channel) as stream:
        stream.send(prepare(0, call("add"), COLUMN.shape, ROW.shape), run(0, COLUMN, ROW))
        stream.answer(0)
        stream.reads.clear()
        stream.send(*(run(number, COLUMN, ROW) for number in range(1, count + 1)))
        until(lambda: len(stream.answers) > 1)
        yield stream


def test_calls_that_wait_for_their_client_to_read_hold_no_slot(narrow):
    """Other clients of the same principal are served; the calls are answered when the client reads again."""
    with sc.connect(narrow.address) as client, stalled(narrow, 40) as stream:
        until(lambda: not client.usage().calls)
        for number in range(20):
            np.testing.assert_array_equal(client.diff(X + number).array, np.diff(X))
        stream.reads.set()
        for number in range(1, 41):
            np.testing.assert_array_equal(result(stream.answer(number)), TABLE)
        assert client.usage().calls == 0


def test_a_call_that_ends_while_its_client_does_not_read_has_no_slot_to_release(narrow):
    with sc.connect(narrow.address) as client, stalled(narrow, 40) as stream:
        until(lambda: not client.usage().calls)
        stream.send(cancel(*range(1, 41)), run(41, COLUMN, ROW, timeout_seconds=0.1), run(42, COLUMN, ROW))
        np.testing.assert_array_equal(client.diff(X).array, np.diff(X))
        stream.reads.set()
        assert {reason(stream.answer(number)) for number in range(1, 41)} == {"", "CANCELLED"}
        assert reason(stream.answer(41)) in {"", "DEADLINE_EXCEEDED"}
        np.testing.assert_array_equal(result(stream.answer(42)), TABLE)
        until(lambda: not client.usage().calls)
        for number in range(4):  # one slot for each client, as before
            np.testing.assert_array_equal(client.diff(X + number).array, np.diff(X))
