"""How .ci/run tells a flaky test from a fault: it runs what failed again, alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = """
from pathlib import Path

import pytest

RUNS = Path(__file__).with_suffix(".runs")

def test_passes_from_the_second_run_on():
    RUNS.open("a").write(".")
    assert RUNS.read_text() != "."

def test_never_passes():
    assert False

def test_is_skipped_from_the_second_run_on():
    RUNS.open("a").write(".")
    if RUNS.read_text() != ".":
        pytest.skip("no reason")
    assert False

def test_ends_the_run():
    pytest.exit("it ends here", returncode=3)
"""


def run_twice(folder: Path, root: Path, *tests: str, ends_with: int = 1) -> tuple[int, str]:
    """The first run as .ci/run makes it, then the second."""
    (folder / "test_chance.py").write_text(TESTS)
    (folder / "conftest.py").write_text((root / "tests/conftest.py").read_text())
    failures = folder / "failures"
    pytest = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", ".", "-p", "no:randomly", "-n", "2"]
    first = run(folder, root, *pytest, f"--failures-to={failures}", *tests)
    assert first.returncode == ends_with, first.stdout + first.stderr
    return rerun(folder, root, failures)


def rerun(folder: Path, root: Path, failures: Path) -> tuple[int, str]:
    second = run(folder, root, sys.executable, str(root / ".ci/rerun"), str(failures))
    return second.returncode, second.stdout


def run(folder: Path, root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(root / "tests")}  # for what conftest.py imports
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_test_that_then_passes_twice_is_reported_and_fails_nothing(tmp_path: Path, root: Path):
    status, printed = run_twice(tmp_path, root, "test_chance.py::test_passes_from_the_second_run_on")
    assert status == 0, printed
    _, flaky = printed.split(" FLAKY ")
    assert "test_chance.py::test_passes_from_the_second_run_on failed, and passed 2 times" in flaky
    assert 'assert RUNS.read_text() != "."' in flaky


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path, root: Path):
    status, printed = run_twice(tmp_path, root, "-k", "passes")
    assert status == 1
    assert "FAILED AGAIN test_chance.py::test_never_passes" in printed
    assert "1 flaky, 1 failed again" in printed


def test_a_test_that_is_skipped_when_run_again_has_not_passed(tmp_path: Path, root: Path):
    status, printed = run_twice(tmp_path, root, "test_chance.py::test_is_skipped_from_the_second_run_on")
    assert status == 1
    assert "0 flaky, 1 failed again" in printed


def test_a_run_that_did_not_reach_its_end_is_a_fault(tmp_path: Path, root: Path):
    tests = [f"test_chance.py::{name}" for name in ("test_passes_from_the_second_run_on", "test_ends_the_run")]
    status, printed = run_twice(tmp_path, root, "-n", "0", *tests, ends_with=3)
    assert (status, printed) == (1, "the run did not reach its end: pytest's exit status is 3\n")
    failures = tmp_path / "failures"
    failures.write_text(failures.read_text().splitlines(keepends=True)[0])  # as a killed run leaves it
    status, printed = rerun(tmp_path, root, failures)
    assert (status, printed) == (1, "the run did not reach its end: pytest's exit status is None\n")


def test_many_failures_and_none_are_faults(tmp_path: Path, root: Path):
    failures, end = tmp_path / "failures", json.dumps({"exit_status": 1})
    failures.write_text("".join(json.dumps({"test": f"test_{i}", "text": ""}) + "\n" for i in range(11)) + end)
    assert rerun(tmp_path, root, failures) == (
        1,
        "11 tests failed: none is run again, since at most 10 are taken for flaky\n",
    )
    failures.write_text(end)
    assert rerun(tmp_path, root, failures) == (1, "the run failed, and no test did\n")
