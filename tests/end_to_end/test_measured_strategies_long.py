"""The tests of `test_measured_strategies.py` that take long."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from end_to_end.test_measured_strategies import CANDIDATES, MEASURED, MESH, X, diff
from servers import running_server

import shardcall as sc
from shardcall import P

pytestmark = pytest.mark.long


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


def test_equivalent_arguments_get_the_same_strategy(measured):
    timings = diff(measured).plan.strategy_timings
    worded = measured.call("diff", X, mesh=MESH, in_specs=[P("x")], out_specs=[P("x", None)], axis=-2, n=1)
    assert worded.plan.strategy_timings == timings


@pytest.mark.parametrize("strategy", sorted(CANDIDATES))
def test_a_call_may_name_its_strategy(measured, strategy):
    plan = diff(measured, strategy=strategy).plan
    assert (plan.strategy, plan.strategy_reason, plan.strategy_timings) == (strategy, "asked for", {})


def test_a_key_that_is_first_used_on_a_busy_mesh_is_timed_when_it_is_idle(measured):
    """The server may or may not be busy at the first call; every key is timed in the end."""
    lengths = range(300, 304)
    plans: list[sc.Plan] = []

    def use(length: int) -> None:
        plans.append(diff(measured, np.ones((length, 64))).plan)

    threads = [threading.Thread(target=use, args=[length]) for length in lengths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {plan.strategy for plan in plans} <= CANDIDATES
    idle = threading.Event()
    for length in lengths:
        while not diff(measured, np.ones((length, 64))).plan.strategy_timings:
            idle.wait(0.2)  # calls without a pause would keep the mesh busy


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
            return dict(diff(client).plan.strategy_timings)

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
