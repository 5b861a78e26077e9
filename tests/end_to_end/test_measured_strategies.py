"""Autotuned strategies on a real server: reported in the plan, kept across restarts, overridden."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from end_to_end.processes import wait_for
from servers import running_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long

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


def timed_plan(client: sc.Client) -> sc.Plan:
    """Returns the plan of a call after its strategies have been timed."""
    wait_for(lambda: bool(diff(client).plan.strategy_timings) or time.sleep(1.5))
    return diff(client).plan


def test_auto_is_timed_and_the_plan_reports_all_times(measured):
    assert diff(measured).plan.strategy_timings == {}
    plan = timed_plan(measured)
    assert set(plan.strategy_timings) == CANDIDATES
    assert next(iter(plan.strategy_timings)) == plan.strategy
    assert all(seconds > 0 for seconds in plan.strategy_timings.values())
    assert plan.strategy_reason.startswith(f"timed: {plan.strategy} ")
    assert plan.strategy_reason in str(plan)
    again = diff(measured).plan
    assert again.cache_hit
    assert (again.strategy, again.strategy_timings) == (plan.strategy, plan.strategy_timings)


def test_small_calls_and_those_that_only_one_strategy_serves_are_not_timed(measured):
    assert diff(measured, X[:8, :8]).plan.strategy_timings == {}
    # With the result's layout left to the compiler, another strategy might make another.
    assert measured.matmul(X, X.T, mesh=MESH, lhs_spec=P("x", None), rhs_spec=P(None, None)).plan.strategy_timings == {}


def test_tuning_results_outlast_the_server_and_a_damaged_file_costs_only_timing_anew(tmp_path):
    file = tmp_path / "tuning.json"
    file.write_text("{")
    tmp_path.chmod(0o700)

    def timings_of_a_new_server(log: Path) -> dict[str, float]:
        flags = (*MEASURED, "--cache-dir", str(tmp_path))
        with (
            running_server(*flags, devices=2, log=log, why="it times strategies") as server,
            sc.connect(server.address) as client,
        ):
            return dict(timed_plan(client).strategy_timings)

    timings = timings_of_a_new_server(tmp_path / "first.log")
    assert set(timings) == CANDIDATES
    assert "are timed anew" in (tmp_path / "first.log").read_text()
    (stored,) = json.loads(file.read_text())["results"].values()
    assert {name: seconds for name, seconds, _ in stored["timings"]} == timings
    assert timings_of_a_new_server(tmp_path / "next.log") == timings
    assert "strategy chosen" not in (tmp_path / "next.log").read_text()


def test_a_cache_of_one_program_goes_by_the_rule(tmp_path):
    flags = (*MEASURED, "--cache-dir", str(tmp_path / "cache"), "--max-cached-programs", "1")
    with running_server(*flags, devices=2, why="it times strategies") as server, sc.connect(server.address) as client:
        for _ in range(2):
            assert diff(client).plan.strategy_timings == {}
