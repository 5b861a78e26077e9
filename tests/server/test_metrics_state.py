"""Metrics of what the server holds, by principal."""

from prometheus_client.core import Metric

from shardcall.v1 import server_info_service_pb2
from shardcall_server.frontend.observability.metrics_state import _principals

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
