"""Metrics, totals and lists of calls, by kernel and by principal, and the states of a recording."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import grpc
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from server.conftest import refusal
from server.fake_calls import finished_call

from shardcall.v1 import server_info_service_pb2, timing_pb2
from shardcall_core.call_error import Reason
from shardcall_core.wire.token_fields import PrincipalLimits
from shardcall_server.frontend.observability.call_totals import Total, TotalsByName
from shardcall_server.frontend.observability.metrics import Metrics
from shardcall_server.frontend.observability.metrics_state import _principals
from shardcall_server.frontend.observability.recent_calls import ProgramCalls, RecentCalls
from shardcall_server.frontend.rpc.promise import Promise
from shardcall_server.frontend.services.principal_usage import PrincipalUsages
from shardcall_server.frontend.services.profile_servicer import ProfileServicer
from shardcall_server.settings import Settings
from shardcall_worker.v1 import link_pb2

OK = grpc.StatusCode.OK


def exposed(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_a_phase_that_was_not_reached_is_not_counted():
    metrics = Metrics()
    metrics.count("Execute", OK, None, finished_call())
    assert 'shardcall_phase_seconds_count{kernel="diff",phase="execute"} 1.0' in exposed(metrics)
    assert 'phase="compile"' not in exposed(metrics)


def test_times_are_counted_up_to_and_including_every_bound():
    metrics, labels = Metrics(), {"kernel": "diff", "phase": "execute"}
    for seconds in (0.0001, 0.0002, 100.0):
        metrics.count("Execute", OK, None, finished_call(timing=timing_pb2.Timing(execute_seconds=seconds)))
    value = metrics.registry.get_sample_value
    for bound, count in (("0.0001", 1), ("0.0003", 2), ("60.0", 2), ("+Inf", 3)):
        assert value("shardcall_phase_seconds_bucket", {**labels, "le": bound}) == count
    assert value("shardcall_phase_seconds_sum", labels) == 0.0001 + 0.0002 + 100.0


def test_a_call_that_never_was_one_is_counted_by_its_reason():
    metrics = Metrics()
    metrics.count("Execute", grpc.StatusCode.UNAUTHENTICATED, Reason.TOKEN_REQUIRED, None)
    assert 'shardcall_auth_failures_total{reason="TOKEN_REQUIRED"} 1.0' in exposed(metrics)
    assert 'shardcall_failed_calls_total{reason="TOKEN_REQUIRED"} 1.0' in exposed(metrics)


PrincipalUsage, CallTotals = server_info_service_pb2.PrincipalUsage, server_info_service_pb2.CallTotals


def samples(*usages: PrincipalUsage, ended: dict[str, int] | None = None) -> dict[str, dict[str, float]]:
    """Returns the values of each metric by the principal in its label."""
    totals = [CallTotals(name=name, calls=calls) for name, calls in (ended or {}).items()]
    usage = server_info_service_pb2.GetUsageResponse(by_principal=usages, principals=totals)
    families: list[Metric] = list(_principals(usage))
    return {family.name: {one.labels["principal"]: one.value for one in family.samples} for family in families}


def test_principals_without_a_token_are_one():
    ada = PrincipalUsage(name="ada", arrays=2, array_bytes=64, programs=3, calls=1, ended_calls=9, weight=1)
    gone = [PrincipalUsage(name=name, arrays=1, array_bytes=8, ended_calls=2) for name in ("x", "y")]
    assert samples(ada, *gone, ended={"ada": 9, "x": 2, "y": 2, "z": 5}) == {
        "shardcall_principal_arrays": {"ada": 2, "other": 2},
        "shardcall_principal_array_bytes": {"ada": 64, "other": 16},
        "shardcall_principal_programs": {"ada": 3, "other": 0},
        "shardcall_principal_calls_at_work": {"ada": 1, "other": 0},
        "shardcall_principal_calls": {"ada": 9, "other": 9},
    }


def test_without_authentication_the_label_is_empty():
    assert samples(PrincipalUsage(arrays=2, ended_calls=4, weight=1)) == {
        "shardcall_principal_arrays": {"": 2},
        "shardcall_principal_array_bytes": {"": 0},
        "shardcall_principal_programs": {"": 0},
        "shardcall_principal_calls_at_work": {"": 0},
        "shardcall_principal_calls": {"": 4},
    }


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
    assert [(one.request_id, one.kernel, one.reason, one.count) for one in recent.errors()] == [
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


def test_calls_are_counted_by_kernel_and_by_principal():
    totals = TotalsByName()
    for kernel, principal, is_failed in (("diff", "ada", False), ("diff", "bob", True), ("", "ada", False)):
        totals.add(kernel, principal, is_failed=is_failed, execute_s=0.5, array_bytes=8)
    by_kernel, by_principal = totals.snapshot()
    totals.add("diff", "ada", is_failed=False, execute_s=0.0, array_bytes=0)  # a snapshot does not change
    assert by_kernel == {"diff": Total(2, 1, 1.0, 16)}
    assert by_principal == {"ada": Total(2, 0, 1.0, 16), "bob": Total(1, 1, 0.5, 8)}


def test_the_number_of_names_is_bounded():
    totals = TotalsByName(max_names=2)
    for name in ("a", "b", "c", "a"):
        totals.add(name, "", is_failed=False, execute_s=0.0, array_bytes=0)
    assert {name: total.calls for name, total in totals.snapshot()[0].items()} == {"a": 2, "b": 1}


Usage = server_info_service_pb2.PrincipalUsage


def usages(limits: dict[str, PrincipalLimits] | None) -> PrincipalUsages:
    table = SimpleNamespace(by_owner=lambda: {"ada": (2, 128), "gone": (1, 64)}, count=3, device_bytes=192)
    admission = SimpleNamespace(calls_by_owner=lambda: Counter(ada=1), call_count=1)
    totals = {"ada": Total(calls=5), "": Total(calls=9)}
    programs = {"": 4, "bob": 2}
    return PrincipalUsages(cast(Any, table), cast(Any, admission), lambda: programs, lambda: totals, lambda: limits)


def test_every_principal_is_listed_by_name_with_its_limits():
    limits = {"bob": PrincipalLimits(max_bytes=0, max_file_bytes=7, weight=3), "ada": PrincipalLimits(max_arrays=2)}
    assert usages(limits).of_all() == [
        Usage(name="ada", arrays=2, array_bytes=128, calls=1, ended_calls=5, max_arrays=2, weight=1),
        Usage(name="bob", programs=2, max_bytes=0, max_file_bytes=7, weight=3),
        Usage(name="gone", arrays=1, array_bytes=64),
    ]
    assert usages(limits).of("bob") == usages(limits).of_all()[1:2]


def test_without_authentication_all_callers_are_one():
    assert usages(None).of_all() == [Usage(arrays=3, array_bytes=192, programs=6, calls=1, ended_calls=9, weight=1)]


def test_a_profile_that_is_being_written_has_another_remedy_than_one_that_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    answer: Promise[link_pb2.WorkerMessage] = Promise()
    session = cast(Any, SimpleNamespace(command=lambda _: answer))
    servicer = ProfileServicer(cast(Any, None), cast(Any, None), Settings())

    def message() -> str:
        error = refusal(servicer._begin, session, "ada", 300.0)
        assert error.reason is Reason.PROFILE_STATE
        return error.message

    recording = servicer._begin(session, "ada", 300.0)
    assert r"stop and fetch it with client.profile(directory).stop()" in message()
    assert servicer._claim() is recording
    recording.stop()
    recording.remove()  # its caller has left
    assert "repeat the call in some seconds" in message()
    assert ".stop()" not in message()
    assert "was stopped already, and its files are being written" in refusal(servicer._claim).message
    answer.set_result(link_pb2.WorkerMessage())
    servicer._begin(session, "ada", 300.0).remove()
    assert "no profile is being recorded" in refusal(servicer._claim).message
