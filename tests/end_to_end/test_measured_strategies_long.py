"""Timed strategies that outlast a server, and a cache of one program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from end_to_end.test_measured_strategies import CANDIDATES, MEASURED, diff
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long


def test_tuning_results_outlast_the_server_and_a_damaged_file_costs_only_timing_anew(tmp_path):
    file = tmp_path / "tuning.json"
    file.write_text("{")
    tmp_path.chmod(0o700)

    def timings_of_a_new_server(log: Path) -> dict[str, float]:
        flags = (*MEASURED, "--cache-dir", str(tmp_path))
        with (
            running_server(*flags, devices=2, log=log, why="it times strategies anew") as server,
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
    with running_server(*flags, devices=2, why="it keeps one program") as server, sc.connect(server.address) as client:
        for _ in range(2):
            assert diff(client).plan.strategy_timings == {}
