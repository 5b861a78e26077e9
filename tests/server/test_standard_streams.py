"""Signals that stop a process of a server, and those that it ignores."""

import os
import signal

from rows import rows

from shardcall_server.standard_streams import stop_signals


@rows(
    ("has_terminal", "before", "stops"),
    [
        (True, signal.SIG_DFL, True),
        (True, signal.SIG_IGN, False),  # nohup
        (False, signal.SIG_DFL, False),
    ],
)
def test_the_end_of_its_terminal_stops_a_process_that_has_one(monkeypatch, has_terminal, before, stops):
    handled: dict[int, object] = {}
    monkeypatch.setattr(os, "isatty", lambda fd: has_terminal and fd == 2)
    monkeypatch.setattr(signal, "getsignal", lambda number: before)
    monkeypatch.setattr(signal, "signal", handled.__setitem__)
    expected = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} if stops else {signal.SIGTERM, signal.SIGINT}
    assert set(stop_signals()) == expected
    ignored = {signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP} - expected
    assert handled == dict.fromkeys(ignored, signal.SIG_IGN)
