"""Calls that a drain waits for, and calls that it admits."""

import threading
from types import SimpleNamespace

from rows import rows
from server.fake_calls import FakeServerCall

from shardcall_core.call_error import CallError, Reason
from shardcall_server.frontend.rpc.drain import Drain

SEGMENT, CONNECTION = b"segment", "ipv4:127.0.0.1:1"


def a_call(connection: str = CONNECTION, **fields: object) -> FakeServerCall:
    return FakeServerCall(connection=connection, **fields)


def refuses(drain: Drain, connection: str = CONNECTION, *, finishes: bool = False) -> bool:
    try:
        with drain.working(a_call(connection), finishes=finishes):
            return False
    except CallError as error:
        return error.reason is Reason.SERVER_DRAINING


def test_a_call_whose_segment_was_opened_is_let_in_and_waited_for():
    drain = Drain()
    drain.expect(SEGMENT, a_call())
    drain.begin()
    assert not drain.wait(0.0)
    assert refuses(drain, "another")
    with drain.working(a_call("another"), has_waited=True):
        pass
    with drain.working(a_call()):
        drain.settle(SEGMENT)
        assert not drain.wait(0.0)
    assert drain.wait(0.0)
    assert refuses(drain)


def test_a_released_segment_is_waited_for_no_longer():
    drain = Drain()
    drain.expect(SEGMENT, a_call())
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
    drain.expect(SEGMENT, a_call())
    drain.begin()
    now[0] = passed_s
    assert refuses(drain) == drain.wait(0.0) == (passed_s == 30.0)


def test_a_drain_waits_for_readers_of_the_results_that_calls_leave():
    drain, result = Drain(), SimpleNamespace(handle=b"handle", is_leased=True)
    with drain.working(a_call(kept_results=[SimpleNamespace(handle=b"earlier", is_leased=True)])):
        pass
    last = a_call(kept_results=[result])
    drain.enter(last)
    drain.begin()
    assert not refuses(drain, finishes=True), "beside a call in progress"
    drain.leave(last)
    assert not drain.wait(0.0)
    assert (refuses(drain), refuses(drain, "another", finishes=True)) == (True, True)
    opening = a_call()
    with drain.working(opening, finishes=True):
        drain.expect(SEGMENT, opening)
    assert refuses(drain), "a segment for a read admits no call"
    with drain.working(a_call(read_handle=result.handle), finishes=True):
        assert not drain.wait(0.0)
    assert drain.wait(0.0)
    assert refuses(drain, finishes=True)


@rows("event", ["deleted", "deleted earlier", "read earlier", "expired"])
def test_a_result_that_nobody_can_or_needs_to_read_is_waited_for_no_longer(event):
    now = [0.0]
    drain, result = Drain(30.0, lambda: now[0]), SimpleNamespace(handle=b"handle", is_leased=event != "deleted earlier")
    last = a_call(kept_results=[result])
    drain.enter(last)
    drain.begin()
    if event == "read earlier":  # by a call that is answered first
        with drain.working(a_call(read_handle=result.handle), finishes=True):
            pass
    drain.leave(last)
    if event in {"deleted", "expired"}:
        assert not drain.wait(0.0)
    result.is_leased = result.is_leased and event != "deleted"
    now[0] = 30.0 if event == "expired" else 1.0
    assert drain.wait(0.0)
    assert refuses(drain, finishes=True)
