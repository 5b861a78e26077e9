"""Calls that a drain waits for, and calls that it admits."""

import threading

from rows import rows

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.rpc.drain import Drain

SEGMENT, CONNECTION = b"segment", "ipv4:127.0.0.1:1"


def refuses(drain: Drain, connection: str = CONNECTION) -> bool:
    try:
        with drain.working(connection):
            return False
    except CallError as error:
        return error.reason is Reason.SERVER_DRAINING


def test_a_call_whose_segment_was_opened_is_let_in_and_waited_for():
    drain = Drain()
    drain.expect(SEGMENT, CONNECTION)
    drain.begin()
    assert not drain.wait(0.0)
    assert refuses(drain, "another")
    with drain.working(CONNECTION):
        drain.settle(SEGMENT)
        assert not drain.wait(0.0)
    assert drain.wait(0.0)
    assert refuses(drain)


def test_a_released_segment_is_waited_for_no_longer():
    drain = Drain()
    drain.expect(SEGMENT, CONNECTION)
    drain.begin()
    waiting = threading.Thread(target=drain.wait, args=[60.0])
    waiting.start()
    drain.settle(SEGMENT)
    waiting.join(60)
    assert not waiting.is_alive()


@rows("passed_s", [29.0, 30.0])
def test_a_segment_that_is_not_used_for_long_is_waited_for_no_longer(passed_s):
    now = [0.0]
    drain = Drain(30.0, lambda: now[0])
    drain.expect(SEGMENT, CONNECTION)
    drain.begin()
    now[0] = passed_s
    assert refuses(drain) == drain.wait(0.0) == (passed_s == 30.0)
