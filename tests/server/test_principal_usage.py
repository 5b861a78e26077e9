"""Arrays, programs and calls by principal, from the objects that count them."""

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from shardcall.v1 import server_info_service_pb2
from shardcall_core.wire.token_fields import PrincipalLimits
from shardcall_server.frontend.observability.call_totals import Total
from shardcall_server.frontend.services.principal_usage import PrincipalUsages

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
