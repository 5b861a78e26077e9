"""The frames of a call stream."""

import threading

import pytest

from shardcall._src.rpc.deadline import Deadline
from shardcall._src.transfer import stream_connection
from shardcall._src.transfer.stream_connection import StreamConnection
from shardcall._src.transfer.stream_request import StreamRequest
from shardcall.v1 import call_stream_pb2

KEY = (b"", (), b"", False)


@pytest.fixture
def connection():
    return StreamConnection(4, threading.Lock())


@pytest.fixture
def pauses(monkeypatch):
    """The actions of the pauses, in order; no other pause is allowed."""
    pauses = []
    monkeypatch.setattr(stream_connection.time, "sleep", lambda seconds: pauses.pop(0)())
    return pauses


def send(connection, *, awaited=True):
    request = call_stream_pb2.CallStreamRequest()
    item = request.items.add().call
    item.SetInParent()
    call = StreamRequest(None, request, item, KEY, 0, "echo", Deadline(5.0))
    connection.add(call)
    call.awaited = awaited
    return call


def answer(connection, *calls):
    frame = call_stream_pb2.CallStreamResponse()
    for call in calls:
        frame.answers.add(number=call.number, response=b"x")
    assert connection.receive(frame) == [*calls]


def after_three_calls(connection, **options):
    """Sends three calls in a frame and answers them together; returns the frames after that one."""
    frames = connection.frames()
    calls = [send(connection, **options) for _ in range(3)]
    next(frames)
    answer(connection, *calls)
    return frames


def numbers(frame):
    items = call_stream_pb2.CallStreamRequest.FromString(frame).items
    return [item.call.number for item in items if item.HasField("call")]


def test_calls_that_wait_share_a_frame(connection, pauses):
    for _ in range(3):
        send(connection)
    assert numbers(next(connection.frames())) == [1, 2, 3]


def test_a_lone_caller_does_not_wait_for_others(connection, pauses):
    frames = connection.frames()
    for number in range(1, 4):
        call = send(connection)
        assert numbers(next(frames)) == [number]
        answer(connection, call)


def test_threads_that_were_answered_together_share_the_next_frame(connection, pauses):
    frames = after_three_calls(connection)
    send(connection)
    pauses += [lambda: send(connection), lambda: send(connection)]
    assert numbers(next(frames)) == [4, 5, 6]
    assert not pauses


def test_a_thread_that_does_not_call_again_is_waited_for_once(connection, pauses):
    frames = after_three_calls(connection)
    pauses.append(lambda: None)
    for number in range(4, 7):
        answered = send(connection)
        assert numbers(next(frames)) == [number]
        answer(connection, answered)
    assert not pauses


def test_calls_without_a_waiting_thread_are_not_waited_for(connection, pauses):
    frames = after_three_calls(connection, awaited=False)
    send(connection)
    assert numbers(next(frames)) == [4]
