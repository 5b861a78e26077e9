"""The tests of `test_streamed_puts.py` that take long."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from client_parts import remote_arrays_of, sender_of, transport_of
from end_to_end.processes import wait_for
from end_to_end.raw_stream import Stream, cancel, delete, item, opened, prepare, put
from end_to_end.test_call_stream import stopped
from end_to_end.test_round_trips import ELEMENT_TYPES, random_values
from end_to_end.test_streamed_puts import X

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
    """A client that puts and copies arrays by its call stream alone."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("an RPC of its own")

    monkeypatch.setattr(transport_of(client), "put_array", refuse)
    monkeypatch.setattr(transport_of(client), "get_array", refuse)
    return client


def test_puts_count_against_the_window_and_end_when_they_are_cancelled(server_factory):
    server = server_factory(
        "--max-streamed-calls", "4", "--max-streamed-bytes", str(1 << 20), devices=1, why="its streams are narrow"
    )
    x = np.ones(1 << 16)
    with opened(server) as stream, sc.connect(server.address) as client:
        stream.send(put(0, x, os.urandom(16)))
        stream.response(0)
        with stopped(server):
            stream.send(*(put(number, x, os.urandom(16)) for number in range(1, 4)))
            assert stream.refusal(3).startswith("QUOTA_EXCEEDED: 1572864 bytes of operands of this stream would be")
            stream.send(cancel(1))
            assert stream.refusal(1).startswith("CANCELLED")
            stream.send(put(4, X, os.urandom(16), timeout_seconds=0.2))
            assert stream.refusal(4).startswith("DEADLINE_EXCEEDED: the call's 0.2 s passed")
        stream.response(2)
        wait_for(lambda: client.usage().arrays == 2 and not client.usage().regions)


def test_a_put_waits_for_earlier_deletions_if_memory_is_short(server_factory):
    server = server_factory("--max-resident-bytes", str(1 << 18), devices=1, why="its memory of arrays is small")
    x = np.ones(1 << 14)
    with opened(server) as stream:
        for number in range(0, 20, 2):
            first, second = os.urandom(16), os.urandom(16)
            stream.send(put(number, x, first), delete(first), put(number + 1, x, second), delete(second))
            stream.response(number)
            stream.response(number + 1)


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=str)
def test_arrays_of_every_element_type_and_layout_are_put(only_streamed, dtype):
    for shape in ((), (1,), (0,), (3, 0), (7, 5), (4, 3, 9), (3, 5000)):
        x = random_values(shape, dtype, seed=len(shape))
        layouts = [x, x.copy(order="F"), np.repeat(x, 2, 0)[::2] if shape else x]
        if x.dtype.newbyteorder("S") != x.dtype and x.dtype.kind in "iufc":
            layouts.append(x.astype(x.dtype.newbyteorder(">")))
        for layout in layouts:
            placed: dict[str, Any] = {"mesh": {"x": 3}, "spec": ("x",)} if shape else {}
            back = only_streamed.put(layout, **placed).get()
            assert (back.shape, back.dtype, back.tobytes()) == (x.shape, x.dtype, x.tobytes())


def test_the_limits_of_arrays_are_those_of_the_rpc(server_factory, monkeypatch):
    server = server_factory("--max-resident-bytes", str(1 << 16), devices=1, why="its memory of arrays is small")
    with sc.connect(server.address) as client:
        h = client.put(np.zeros(6000))
        messages = []
        for streams in (True, False):
            with monkeypatch.context() as patch:
                if not streams:
                    patch.setattr(remote_arrays_of(client), "_stream_for", lambda nbytes: None)
                with pytest.raises(sc.ResourceExhaustedError) as caught:
                    client.put(np.zeros(6000))
                messages.append((caught.value.reason, caught.value.message))
        assert messages[0] == messages[1]
        assert messages[0][0] == "RESIDENT_LIMIT"
        for _ in range(20):  # arrays of dropped objects are deleted first
            del h
            h = client.put(np.zeros(6000))
        assert h.get().sum() == 0


def test_a_put_outlasts_a_restart_of_the_mesh(server_factory):
    server = server_factory(devices=1, why="its worker is killed")
    with sc.connect(server.address) as client, ThreadPoolExecutor(1) as pool:
        lost = client.put(X)
        (worker,) = server.worker_pids()
        with stopped(server):
            waiting = pool.submit(client.put, X + 1)
            wait_for(lambda: sender_of(client)._stream._current.unanswered)
            os.kill(worker, signal.SIGKILL)
        np.testing.assert_array_equal(waiting.result(60).get(), X + 1)
        with pytest.raises(sc.ArrayLostError, match="which the mesh no longer has"):
            lost.get()
        np.testing.assert_array_equal(client.put(X).get(), X)


def test_a_client_whose_stream_is_refused_puts_by_other_methods(server_factory):
    server = server_factory("--max-call-streams", "1", devices=1, why="it has one call stream")
    with opened(server) as other, sc.connect(server.address) as client:
        other.send(prepare(), item(1, X))
        other.result(1)
        np.testing.assert_array_equal(client.put(X).get(), X)
