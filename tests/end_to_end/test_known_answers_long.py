"""The tests of `test_known_answers.py` that take long."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import known_answers
import numpy as np
import pytest
from end_to_end.processes import wait_for
from end_to_end.scraping import log_lines, metrics_url, scrape
from end_to_end.test_known_answers import DETAIL, TEST, X
from servers import running_server

import shardcall as sc

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def refusing(tmp_path_factory):
    """A server whose compiler, by the verdict on disk, gets arctan of float64 wrong; its log."""
    folder = tmp_path_factory.mktemp("cache")
    known_answers.give(folder)
    file = folder / known_answers.FILE_NAME
    stored = json.loads(file.read_text())
    tests = [test for test in stored["verdicts"].values() if test["known_answer"].startswith(TEST)]
    for test in tests:
        test["failures"] = {"arctan": DETAIL}
    assert tests
    file.write_text(json.dumps(stored))
    log = folder / "log"
    with running_server(
        "--cache-dir", str(folder), "--metrics-port", "0", log=log, why="a known-answer test has failed there"
    ) as running:
        yield running, log


def test_a_kernel_that_failed_is_reported_by_every_view_of_the_server(refusing):
    running, log = refusing
    with sc.connect(running.address) as client:
        for verdicts in (client.server_info().known_answers, client.usage().known_answers):
            assert [(failure.kernel, failure.detail) for failure in verdicts.failures] == [("arctan", DETAIL)]
        assert f"FAILED, and refused: arctan ({TEST}" in str(client.server_info())
    for command in ("status", "info"):
        shown = subprocess.run(
            [sys.executable, "-m", "shardcall.cli", command, running.address],
            capture_output=True,
            text=True,
            env={**os.environ, "COLUMNS": "300"},
            check=True,
        )
        assert f"arctan ({TEST}" in shown.stdout
        assert DETAIL in shown.stdout
    scraped = scrape(metrics_url(log))
    assert scraped.total("shardcall_kernel_failed_known_answers", kernel="arctan") == 1
    assert scraped.total("shardcall_known_answers", verdict="failed") == 1
    wait_for(lambda: any(line.get("known_answer") for line in log_lines(log)))
    lines = [line for line in log_lines(log) if line.get("known_answer")]
    assert [(line["kernel"], line["level"], line["detail"]) for line in lines] == [("arctan", "error", DETAIL)]


def test_a_server_without_verdicts_runs_what_a_call_waits_for(tmp_path):
    server = running_server("--cache-dir", str(tmp_path), devices=2, knows_answers=False, why="it has no verdicts")
    with server as running, sc.connect(running.address) as client:
        before = client.usage().programs
        np.testing.assert_array_equal(client.diff(X, mesh=sc.Mesh(x=2)).array, np.diff(X))
        assert client.usage().programs == before + 1  # the tests' programs are none of the callers'
        assert client.server_info().known_answers.passed >= 1
    stored = json.loads((tmp_path / known_answers.FILE_NAME).read_text())
    assert "halo exchange" in {verdict["known_answer"] for verdict in stored["verdicts"].values()}
