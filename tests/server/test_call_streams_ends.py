"""The end of call streams whose token is removed."""

from __future__ import annotations

import threading
from typing import Any

from shardcall_server.frontend.access import tokens
from shardcall_server.frontend.services import call_streams
from shardcall_server.frontend.services.call_streams import CallStreams

MAX_S = 1.0  # as call_stream.proto promises


class Stream:
    """A stream that counts the checks of its token."""

    def __init__(self) -> None:
        self.checks = 0
        self.checked = threading.Event()

    def check_token(self) -> None:
        self.checks += 1
        if self.checks == 3:
            self.checked.set()


def test_the_tokens_of_streams_are_checked_again_and_again_without_items(monkeypatch):
    monkeypatch.setattr(call_streams, "_CHECK_S", 0.001)
    unused: Any = None
    streams, stream = CallStreams(unused, unused, unused, 1, unused), Stream()
    streams._streams.add(stream)  # type: ignore[arg-type]
    try:
        assert stream.checked.wait(60)
    finally:
        streams.close()


def test_the_intervals_of_the_checks_add_up_to_what_the_contract_promises():
    """The file is read, the stream is asked to end, and is ended if its client does not read."""
    assert tokens._POLL_S + 2 * call_streams._CHECK_S <= MAX_S
