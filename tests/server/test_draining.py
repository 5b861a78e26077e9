"""Which calls a drain waits for, and which it lets in."""

from __future__ import annotations

import threading

import pytest

from shardcall_server.errors import CallError, Reason
from shardcall_server.frontend.rpc.draining import Draining

SEGMENT, CONNECTION = b"segment", "ipv4:127.0.0.1:1"


def refuses(draining: Draining, connection: str = CONNECTION) -> bool:
    try:
        with draining.working(connection):
            return False
    except CallError as error:
        return error.reason is Reason.SERVER_DRAINING


def test_a_call_whose_segment_was_opened_is_let_in_and_waited_for():
    draining = Draining()
    draining.expect(SEGMENT, CONNECTION)
    draining.begin()
    assert not draining.wait(0.0)
    assert refuses(draining, "another")
    with draining.working(CONNECTION):
        draining.settle(SEGMENT)
        assert not draining.wait(0.0)
    assert draining.wait(0.0)
    assert refuses(draining)


def test_a_segment_that_is_given_back_is_waited_for_no_longer():
    draining = Draining()
    draining.expect(SEGMENT, CONNECTION)
    draining.begin()
    waiting = threading.Thread(target=draining.wait, args=[60.0])
    waiting.start()
    draining.settle(SEGMENT)
    waiting.join(60)
    assert not waiting.is_alive()


@pytest.mark.parametrize("passed_s", [29.0, 30.0])
def test_a_segment_that_is_not_used_for_long_is_waited_for_no_longer(passed_s):
    now = [0.0]
    draining = Draining(30.0, lambda: now[0])
    draining.expect(SEGMENT, CONNECTION)
    draining.begin()
    now[0] = passed_s
    assert refuses(draining) == draining.wait(0.0) == (passed_s == 30.0)
