"""The tests of `test_call_stream.py` that take long."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from end_to_end.raw_stream import Stream, item, opened, prepare
from end_to_end.test_call_stream import X, stopped

pytestmark = pytest.mark.long


@pytest.fixture
def stream(server) -> Iterator[Stream]:
    with opened(server) as stream:
        yield stream


def test_neither_the_idle_limit_nor_the_call_limit_ends_a_stream(server_factory):
    server = server_factory("--stream-idle-s", "1", "--max-call-s", "2", devices=1, why="its limits of time are short")
    with opened(server) as stream:
        stream.send(prepare(), item(1, X))
        stream.answer(1)  # late, perhaps
        time.sleep(3)
        stream.send(item(2, X))
        np.testing.assert_array_equal(stream.result(2), np.diff(X))


def test_a_draining_server_answers_the_calls_in_progress_and_ends_the_stream(server_factory):
    server = server_factory(devices=1, why="it drains")
    with opened(server) as stream:
        stream.send(prepare(), item(1, X))
        stream.answer(1)
        with stopped(server):
            stream.send(item(2, X), item(3, X))
            stream.send(item(4, X, slot=9))
            stream.answer(4)  # the calls before it have begun
            server.process.send_signal(signal.SIGTERM)
            while not stream.draining:
                stream.read()
            stream.send(item(5, X))
            assert stream.refusal(5).startswith("SERVER_DRAINING")
        for number in (2, 3):
            np.testing.assert_array_equal(stream.result(number), np.diff(X))
        assert stream.end() is grpc.StatusCode.OK
