"""Errors of late calls; deadlines of a real server are in tests/end_to_end."""

from __future__ import annotations

from typing import Any

from rows import rows

from shardcall_server.frontend.rpc.server_call import ServerCall


class Context:
    """The part of gRPC's context that a `ServerCall` uses, with the time that remains."""

    def __init__(self, remaining_s: float) -> None:
        self._remaining_s = remaining_s

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def time_remaining(self) -> float:
        return self._remaining_s

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()


@rows(
    ("left_s", "says"),
    [
        (2.5, "the call's 2.5 s passed while compiling; use a longer timeout"),
        (2e-5, "almost no time was left when the call arrived, and it passed while compiling; use a longer timeout"),
        (0.0, "almost no time was left when the call arrived, and it passed while compiling; use a longer timeout"),
    ],
)
def test_a_call_whose_time_was_spent_before_it_arrived_is_not_said_to_have_had_none(left_s, says):
    context: Any = Context(left_s)
    assert ServerCall.of_rpc(context, max_call_s=60).deadline_exceeded("compiling").message == says
