"""Call streams that wait: limits of calls and bytes, deadlines, drains and restarts."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from client_parts import sender_of
from end_to_end.processes import stopped, wait_for
from end_to_end.raw_stream import cancel, delete, item, opened, prepare, put, read
from end_to_end.test_call_stream import X
from end_to_end.test_streamed_arrays import kept_slot

import shardcall as sc

pytestmark = pytest.mark.long


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


def test_puts_count_against_the_window_and_end_when_they_are_cancelled(narrow, narrow_server):
    x = np.ones(1 << 16)
    with sc.connect(narrow_server.address) as client:
        narrow.send(put(0, x, os.urandom(16)))
        narrow.response(0)
        with stopped(narrow_server):
            narrow.send(*(put(number, x, os.urandom(16)) for number in range(1, 4)))
            assert narrow.refusal(3).startswith("QUOTA_EXCEEDED: 1572864 bytes of operands of this stream would be")
            narrow.send(cancel(1))
            assert narrow.refusal(1).startswith("CANCELLED")
            narrow.send(put(4, X, os.urandom(16), timeout_seconds=0.2))
            assert narrow.refusal(4).startswith("DEADLINE_EXCEEDED: the call's 0.2 s passed")
        narrow.response(2)
        wait_for(lambda: client.usage().arrays == 2 and not client.usage().regions)


def test_reads_count_against_the_window(narrow, narrow_server):
    with sc.connect(narrow_server.address) as client, client.put(np.ones(100_000)) as array:
        handle = bytes.fromhex(array.handle)
        narrow.send(read(0, handle))
        narrow.response(0)
        with stopped(narrow_server):
            narrow.send(*(read(number, handle) for number in range(1, 6)))
            assert narrow.refusal(5).startswith("QUOTA_EXCEEDED: 5 calls of this stream would be unanswered")
        for number in range(1, 5):  # two of which may not be in memory at once
            assert narrow.result(number).sum() == 100_000
        wait_for(lambda: not client.usage().regions)


def test_a_read_ends_at_its_deadline_and_when_it_is_cancelled(exclusive_server):
    with opened(exclusive_server) as stream, sc.connect(exclusive_server.address) as client, client.put(X) as array:
        handle, pending = bytes.fromhex(array.handle), os.urandom(16)
        stream.send(kept_slot(), item(1, X))
        stream.response(1)
        with stopped(exclusive_server):
            stream.send(item(2, X, result_handles=[pending]), read(3, pending), read(4, handle), cancel(3, 4))
            stream.send(read(5, pending, timeout_seconds=0.3), read(6, handle, timeout_seconds=0.2))
            for number in (3, 4):
                assert stream.refusal(number).startswith("CANCELLED")
            for number, limit in ((6, 0.2), (5, 0.3)):
                assert stream.refusal(number).startswith(f"DEADLINE_EXCEEDED: the call's {limit} s passed")
            stream.send(read(7, pending))
        np.testing.assert_array_equal(stream.result(7), -X)
        stream.send(delete(pending))


def test_a_restart_of_the_mesh_loses_the_arrays_of_reads(exclusive_server):
    with opened(exclusive_server) as stream, sc.connect(exclusive_server.address) as client:
        array = client.put(X)
        (worker,) = exclusive_server.worker_pids()
        with stopped(exclusive_server):
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


def test_a_put_outlasts_a_restart_of_the_mesh(exclusive_server):
    with sc.connect(exclusive_server.address) as client, ThreadPoolExecutor(1) as pool:
        lost = client.put(X)
        (worker,) = exclusive_server.worker_pids()
        with stopped(exclusive_server):
            waiting = pool.submit(client.put, X + 1)
            wait_for(lambda: sender_of(client)._stream._current.unanswered)
            os.kill(worker, signal.SIGKILL)
        np.testing.assert_array_equal(waiting.result(60).get(), X + 1)
        with pytest.raises(sc.ArrayLostError, match="which the mesh no longer has"):
            lost.get()
        np.testing.assert_array_equal(client.put(X).get(), X)


def test_puts_wait_for_earlier_deletions(server_factory):
    server = server_factory("--max-resident-bytes", str(1 << 16), devices=1, why="its memory of arrays is small")
    x = np.ones(1 << 12)
    with opened(server) as stream:
        for number in range(0, 20, 2):
            first, second = os.urandom(16), os.urandom(16)
            stream.send(put(number, x, first), delete(first), put(number + 1, x, second), delete(second))
            stream.response(number)
            stream.response(number + 1)
    with sc.connect(server.address) as client:
        h = client.put(np.zeros(6000))
        with pytest.raises(sc.ResourceExhaustedError) as caught:
            client.put(np.zeros(6000))
        assert caught.value.reason == "RESIDENT_LIMIT"
        h.delete()
        h = client.put(np.zeros(1500))  # of which four fit
        for _ in range(50):
            h += 1
        client.put(np.zeros(3000)).delete()
        assert np.array_equal(h, np.full(1500, 50.0))
        for _ in range(20):  # arrays of dropped objects are deleted first
            del h
            h = client.put(np.zeros(6000))
        assert h.get().sum() == 0
