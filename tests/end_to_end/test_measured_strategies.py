"""Autotuned strategies on a real server: reported in the plan, kept across restarts, overridden."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from servers import running_server

import shardcall as sc
from shardcall import P

MESH = sc.Mesh(x=2)
CANDIDATES = {"halo", "gspmd"}
# However slow this machine is just now, both are timed.
MEASURED = ("--strategy", "measured", "--max-timing-s", "300")
X = np.random.default_rng(0).random((256, 64))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("measured") / "cache"


@pytest.fixture(scope="module")
def measured(folder: Path) -> Iterator[sc.Client]:
    with (
        running_server(*MEASURED, "--cache-dir", str(folder), devices=2, why="it times strategies") as server,
        sc.connect(server.address) as client,
    ):
        yield client


def diff(client: sc.Client, x: np.ndarray = X, **options: str) -> sc.Result:
    result = client.diff(x, axis=0, mesh=MESH, spec=P("x", None), **options)
    np.testing.assert_array_equal(result.array, np.diff(x, axis=0))
    return result


def test_auto_is_timed_and_the_plan_reports_all_times(measured):
    plan = diff(measured).plan
    assert set(plan.strategy_timings) == CANDIDATES
    assert next(iter(plan.strategy_timings)) == plan.strategy
    assert all(seconds > 0 for seconds in plan.strategy_timings.values())
    assert plan.strategy_reason.startswith(f"timed: {plan.strategy} ")
    assert plan.strategy_reason in str(plan)
    again = diff(measured).plan
    assert again.cache_hit
    assert (again.strategy, again.strategy_timings) == (plan.strategy, plan.strategy_timings)


def test_the_result_has_the_same_layout_as_without_timing(measured, client):
    assert diff(measured).plan.results == diff(client).plan.results


def test_small_calls_and_those_that_only_one_strategy_serves_are_not_timed(measured):
    assert diff(measured, X[:8, :8]).plan.strategy_timings == {}
    # With the result's layout left to the compiler, another strategy might make another.
    product = measured.matmul(X, X.T, mesh=MESH, lhs_spec=P("x", None), rhs_spec=P(None, None))
    assert product.plan.strategy_timings == {}


def test_a_server_of_fixed_strategies_goes_by_the_rule(client):
    plan = diff(client).plan
    assert (plan.strategy, plan.strategy_timings) == ("halo", {})
    assert "timed" not in plan.strategy_reason
    assert diff(client, strategy="gspmd").plan.strategy == "gspmd"
