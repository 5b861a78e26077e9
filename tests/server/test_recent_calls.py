"""The last calls and errors, as the live page shows them."""

from server.fake_calls import finished_call

from shardcall_core.call_error import Reason
from shardcall_server.frontend.observability.recent_calls import ProgramCalls, RecentCalls


def test_the_last_calls_are_kept_the_latest_first():
    recent = RecentCalls()
    for i in range(100):
        recent.add("Execute", finished_call(str(i)), None)
    kept = recent.calls()
    assert [one.request_id for one in kept] == [str(i) for i in range(99, 75, -1)]
    assert (kept[0].total_s, kept[0].array_bytes, kept[0].reason) == (1.0, 7, None)
    assert recent.errors() == []


def test_equal_errors_without_another_between_them_are_counted_and_dependent_ones_are_not():
    recent = RecentCalls()
    for i in range(3):
        recent.add("Execute", finished_call(str(i)), Reason.AXIS_OUT_OF_RANGE)
    recent.add("Execute", finished_call("dependent", is_dependent=True), Reason.AXIS_OUT_OF_RANGE)
    recent.add("Execute", finished_call("other", kernel="sum"), Reason.AXIS_OUT_OF_RANGE)
    for _ in range(1000):
        recent.add_refused("other", Reason.TOKEN_REQUIRED)
    shown = [(one.request_id, one.kernel, one.reason, one.count) for one in recent.errors()]
    assert shown == [
        ("", "", Reason.TOKEN_REQUIRED, 1000),
        ("other", "sum", Reason.AXIS_OUT_OF_RANGE, 1),
        ("2", "diff", Reason.AXIS_OUT_OF_RANGE, 3),
    ]


def test_callers_who_are_refused_remove_no_errors_of_others():
    recent = RecentCalls()
    recent.add("Execute", finished_call(), Reason.AXIS_OUT_OF_RANGE)
    for i in range(1000):
        recent.add_refused(f"method {i % 2}", [Reason.TOKEN_REQUIRED, Reason.AXIS_OUT_OF_RANGE][i // 2 % 2])
    assert [error.count for error in recent.errors()] == [250, 250, 250, 250, 1]
    for i in range(1000):
        recent.add_refused(f"method {i}", Reason.TOKEN_REQUIRED)
    assert len(recent.errors()) == 9
    assert recent.errors()[-1].reason == Reason.AXIS_OUT_OF_RANGE


def test_the_calls_of_programs_are_counted_for_a_limited_number():
    recent = RecentCalls()
    recent.add("Execute", finished_call(cache_hit=False), None)
    recent.add("Execute", finished_call(), None)
    recent.add("Execute", finished_call(key=""), None)
    assert recent.of_program("k") == ProgramCalls(hits=1, execute_s=1.0)
    for i in range(1024):
        recent.add("Execute", finished_call(key=f"k{i}"), None)
    assert recent.of_program("k") == ProgramCalls()
    assert recent.of_program("k1023").hits == 1
