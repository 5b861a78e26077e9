"""The tests of `test_streamed_reads.py` that take long."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from client_parts import transport_of
from end_to_end.processes import wait_for
from end_to_end.raw_stream import Stream, cancel, delete, item, opened, prepare, read
from end_to_end.test_call_stream import stopped
from end_to_end.test_round_trips import ELEMENT_TYPES, random_values
from end_to_end.test_streamed_reads import X, kept_slot

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture
def stream(server) -> Iterator[Stream]:
    with opened(server) as opened_stream:
        yield opened_stream


@pytest.fixture
def client(server) -> Iterator[sc.Client]:
    """A client with a stream of its own."""
    with sc.connect(server.address) as connected:
        yield connected


@pytest.fixture
def only_streamed(client, monkeypatch) -> sc.Client:
    """A client that copies arrays by its call stream alone."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an RPC of its own")

    monkeypatch.setattr(transport_of(client), "get_array", refuse)
    return client


def test_a_read_ends_at_its_deadline_and_when_it_is_cancelled(server_factory):
    server = server_factory(devices=1, why="its worker is stopped")
    with opened(server) as stream, sc.connect(server.address) as client, client.put(X) as array:
        handle, pending = bytes.fromhex(array.handle), os.urandom(16)
        stream.send(kept_slot(), item(1, X))
        stream.response(1)
        with stopped(server):
            stream.send(item(2, X, result_handles=[pending]), read(3, pending), read(4, handle), cancel(3, 4))
            stream.send(read(5, pending, timeout_seconds=0.3), read(6, handle, timeout_seconds=0.2))
            for number in (3, 4):
                assert stream.refusal(number).startswith("CANCELLED")
            for number, limit in ((6, 0.2), (5, 0.3)):
                assert stream.refusal(number).startswith(f"DEADLINE_EXCEEDED: the call's {limit} s passed")
            stream.send(read(7, pending))
        np.testing.assert_array_equal(stream.result(7), -X)
        stream.send(delete(pending))


def test_reads_count_against_the_window(server_factory):
    server = server_factory(
        "--max-streamed-calls", "4", "--max-streamed-bytes", str(1 << 20), devices=1, why="its streams are narrow"
    )
    with opened(server) as stream, sc.connect(server.address) as client, client.put(np.ones(100_000)) as array:
        handle = bytes.fromhex(array.handle)
        stream.send(read(0, handle))
        stream.response(0)
        with stopped(server):
            stream.send(*(read(number, handle) for number in range(1, 6)))
            assert stream.refusal(5).startswith("QUOTA_EXCEEDED: 5 calls of this stream would be unanswered")
        for number in range(1, 5):  # two of which may not be in memory at once
            assert stream.result(number).sum() == 100_000
        wait_for(lambda: not client.usage().regions)


def test_a_restart_of_the_mesh_loses_the_arrays_of_reads(server_factory):
    server = server_factory(devices=1, why="its worker is killed")
    with opened(server) as stream, sc.connect(server.address) as client:
        array = client.put(X)
        (worker,) = server.worker_pids()
        with stopped(server):
            stream.send(read(1, bytes.fromhex(array.handle)))
            stream.send(item(2, X, slot=9))
            stream.refusal(2)
            os.kill(worker, signal.SIGKILL)
        assert stream.refusal(1).partition(":")[0] in ("MESH_RESTARTED", "ARRAY_LOST")
        stream.send(read(3, bytes.fromhex(array.handle)))
        assert stream.refusal(3).startswith("ARRAY_LOST: ")
        with pytest.raises(sc.ArrayLostError, match="which the mesh no longer has"):
            array.get()
        assert "no longer has" in repr(array)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_arrays_of_every_element_type_are_read(only_streamed, dtype):
    for shape in ((), (1,), (0,), (3, 0), (7, 5), (4, 3, 9), (3, 5000)):
        x = random_values(shape, dtype, seed=len(shape))
        placed: dict[str, Any] = {"mesh": {"x": 3}, "spec": ("x",)} if shape else {}
        there = only_streamed.put(x, **placed)
        copied = only_streamed.submit("copy", there)
        for array in (there, copied, only_streamed.submit("copy", copied)):
            back = array.get()
            assert (back.shape, back.dtype, back.tobytes()) == (x.shape, x.dtype, x.tobytes())
            assert back.flags.writeable
            assert back.flags.owndata


def test_a_read_ends_at_its_timeout_and_when_it_is_interrupted(server_factory):
    server = server_factory(devices=1, why="its worker is stopped")
    with sc.connect(server.address) as client:
        h = client.put(X)
        np.testing.assert_array_equal((h + 1).get(), X + 1)
        with stopped(server):
            for array in (h, h + 1):
                with pytest.raises(sc.DeadlineExceededError):
                    array.get(timeout=0.2)
            g = h + 2
            main = threading.get_ident()
            timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                g.get()
            timer.join()
        np.testing.assert_array_equal(g.get(), X + 2)
        np.testing.assert_array_equal(h.get(), X)


def test_a_client_whose_stream_is_refused_reads_by_other_methods(server_factory):
    server = server_factory("--max-call-streams", "1", devices=1, why="it has one call stream")
    with opened(server) as other, sc.connect(server.address) as client:
        other.send(prepare(), item(1, X))
        other.result(1)
        h = client.put(X)
        np.testing.assert_array_equal(h.get(), X)
        np.testing.assert_array_equal((h + 1).get(), X + 1)
