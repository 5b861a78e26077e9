"""Flaky tests in .ci/run: it runs what failed again, alone, to distinguish them from faults."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
"""


def first_run(folder: Path, root: Path, *arguments: str) -> tuple[int, Path]:
    """The first run as .ci/run makes it: its exit status, and what it wrote of its failures."""
    (folder / "conftest.py").write_text((root / "tests/conftest.py").read_text())
    failures = folder / "failures"
    pytest = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", "."]
    return run(folder, root, *pytest, f"--failures-to={failures}", *arguments).returncode, failures


def rerun(folder: Path, root: Path, *failures: dict[str, object]) -> tuple[int, str]:
    """The exit status and output of the second run, after a first one that wrote these lines."""
    (folder / "failures").write_text("".join(json.dumps(line) + "\n" for line in failures))
    second = run(folder, root, sys.executable, str(root / ".ci/rerun"), str(folder / "failures"))
    return second.returncode, second.stdout


def run(folder: Path, root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_chance.py").write_text(TESTS)
    # For what conftest.py imports; and plugins, which take seconds to load, are not what is tested.
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    environment = {**os.environ, "PYTHONPATH": str(root / "tests"), **plugins}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def failure(name: str) -> dict[str, object]:
    return {"test": f"test_chance.py::{name}", "text": f"how {name} failed"}


THE_END = {"exit_status": 1}


def test_a_run_writes_what_failed_and_how_it_ended(tmp_path: Path, root: Path):
    status, failures = first_run(tmp_path, root, "-n", "1", "-k", "passes")
    *failed, end = map(json.loads, failures.read_text().splitlines())
    assert (status, end) == (1, THE_END)
    assert sorted(line["test"] for line in failed) == [
        "test_chance.py::test_never_passes",
        "test_chance.py::test_passes_from_the_second_run_on",
    ]
    assert any('assert RUNS.read_text() != "."' in line["text"] for line in failed)


def test_a_test_that_then_passes_twice_is_reported_and_fails_nothing(tmp_path: Path, root: Path):
    (tmp_path / "test_chance.runs").write_text(".")
    name = "test_passes_from_the_second_run_on"
    status, printed = rerun(tmp_path, root, failure(name), THE_END)
    assert status == 0, printed
    _, flaky = printed.split(" FLAKY ")
    assert f"test_chance.py::{name} failed, and passed 2 times" in flaky
    assert f"how {name} failed" in flaky


def test_a_test_that_fails_again_or_is_skipped_fails_the_run(tmp_path: Path, root: Path):
    (tmp_path / "test_chance.runs").write_text(".")
    names = ["test_never_passes", "test_is_skipped_from_the_second_run_on"]
    status, printed = rerun(tmp_path, root, *map(failure, names), THE_END)
    assert status == 1
    assert [f"FAILED AGAIN test_chance.py::{name}" in printed for name in names] == [True, True]
    assert "0 flaky, 2 failed again" in printed


@pytest.mark.parametrize("status", [3, None])
def test_a_run_that_did_not_reach_its_end_is_a_fault(tmp_path: Path, root: Path, status: int | None):
    end = [{"exit_status": status}] if status else []  # a killed run leaves none
    assert rerun(tmp_path, root, failure("test_never_passes"), *end) == (
        1,
        f"the run did not reach its end: pytest's exit status is {status}\n",
    )


def test_many_failures_and_none_are_faults(tmp_path: Path, root: Path):
    assert rerun(tmp_path, root, *(failure(f"test_{i}") for i in range(4)), THE_END) == (
        1,
        "4 tests failed: none is run again, since at most 3 are taken for flaky\n",
    )
    assert rerun(tmp_path, root, THE_END) == (1, "the run failed, and no test did\n")
