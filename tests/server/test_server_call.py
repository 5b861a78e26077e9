"""Errors of late calls; deadlines of a real server are in tests/end_to_end."""

import threading
from typing import Any

import pytest
from rows import rows
from server.conftest import refusal

from shardcall_core.call_error import CallError
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.rpc.server_call import ServerCall


class Context:
    """The part of gRPC's context that a `ServerCall` uses; it ends when the test says so."""

    def __init__(self, remaining_s: float = 60) -> None:
        self.callbacks: list[Any] = []
        self.is_ended = False
        self.time_remaining = lambda: remaining_s
        self.peer = lambda: "ipv4:127.0.0.1:1"
        self.invocation_metadata = tuple[tuple[str, str]]

    def is_active(self) -> bool:
        return not self.is_ended

    def add_callback(self, callback: Any) -> bool:
        if not self.is_ended:
            self.callbacks.append(callback)
        return not self.is_ended

    def end(self) -> None:
        self.is_ended = True
        for callback in self.callbacks:
            callback()


ALMOST_NONE = "almost no time was left when the call arrived, and it passed while compiling; use a longer timeout"


@rows(
    ("left_s", "says"),
    [(2.5, "the call's 2.5 s passed while compiling; use a longer timeout"), (2e-5, ALMOST_NONE), (0.0, ALMOST_NONE)],
)
def test_a_call_whose_time_was_spent_before_it_arrived_is_not_said_to_have_had_none(left_s, says):
    context: Any = Context(left_s)
    assert ServerCall.of_rpc(context, max_call_s=60).deadline_exceeded("compiling").message == says


def test_the_requests_of_a_stream_share_one_callback_which_ends_their_waits():
    context: Any = Context()
    stream = ServerCall.of_rpc(context, max_call_s=60)
    for _ in range(3):
        answered: Promise[int] = Promise()
        timer = threading.Timer(0.02, answered.set_result, [7])
        timer.start()
        assert stream.of_request().block(answered, "running") == 7
        timer.join()
    assert len(context.callbacks) == 1
    timer = threading.Timer(0.02, context.end)
    timer.start()
    with pytest.raises(CallError, match="the caller cancelled"):
        stream.of_request().block(Promise[int](), "running")
    timer.join()
    for late in (stream.of_request(), ServerCall.of_rpc(context, max_call_s=60)):
        assert "the caller cancelled" in refusal(late.block, Promise[int](), "running").message
