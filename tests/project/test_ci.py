"""Scripts of CI: which newer version of Python a commit is tested with, and flaky tests, which are run again, alone."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from project.conftest import Require

NAME = "Programming Language :: Python :: "
GIT = ["git", "-c", "user.name=a", "-c", "user.email=b@c"]


@pytest.fixture
def checkout(tmp_path: Path, root: Path, require: Require) -> Path:
    """A repository with one commit that states some versions of Python, of which 3.98 and 3.99 do not exist yet."""
    require(shutil.which("git") is not None, "git")
    folder = tmp_path / "checkout"
    (folder / ".ci").mkdir(parents=True)
    shutil.copy(root / ".ci/newer", folder / ".ci")
    state(folder, "3", "3.7", "3.98", "3.99")
    subprocess.run([*GIT, "init", "-q"], cwd=folder, check=True)
    commit(folder)
    return folder


def state(folder: Path, *versions: str) -> None:
    classifiers = [NAME + version for version in versions]
    (folder / "pyproject.toml").write_text(f"[project]\nclassifiers = {classifiers}\n")


def commit(folder: Path) -> None:
    subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", "next"], cwd=folder, check=True)


def write_interpreter(folder: Path, version: str, script: str | None = None) -> Path:
    """Writes a program with the name of a version of Python, which answers with it unless it has another script."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"python{version}"
    path.write_text(f"#!/bin/sh\n{script or f'echo {version}'}\n")
    path.chmod(0o755)
    return path


def chosen(checkout: Path) -> str:
    """Returns the output of `.ci/newer` for CI: a version and the path of its interpreter, or nothing."""
    git = Path(str(shutil.which("git"))).parent
    environment = {"PATH": f"{checkout.parent / 'bin'}:{git}", "PYENV_ROOT": str(checkout.parent / "pyenv")}
    command = [sys.executable, checkout / ".ci/newer"]
    completed = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    return completed.stdout.rstrip("\n")


def test_commits_alternate_between_the_versions_and_a_commit_always_has_the_same(checkout: Path, tmp_path: Path):
    expected = {f"{version} {write_interpreter(tmp_path / 'bin', version)}" for version in ("3.98", "3.99")}
    first = [chosen(checkout), chosen(checkout)]
    commit(checkout)
    second = chosen(checkout)
    commit(checkout)
    assert {*first, second} == expected
    assert first == [chosen(checkout)] * 2


def test_an_interpreter_counts_if_it_runs_and_is_of_the_version(checkout: Path, tmp_path: Path):
    write_interpreter(tmp_path / "bin", "3.98", "echo 'pyenv: python3.98: command not found' >&2; exit 127")
    write_interpreter(tmp_path / "bin", "3.99", "echo 3.11")
    assert not chosen(checkout)
    path = write_interpreter(tmp_path / "pyenv/versions/3.98.1/bin", "3.98")
    assert chosen(checkout) == f"3.98 {path}"


def test_versions_that_are_not_stated_or_not_newer_do_not_count(checkout: Path, tmp_path: Path):
    for version in ("3.7", "3.97", f"3.{sys.version_info.minor}"):
        write_interpreter(tmp_path / "bin", version)
    state(checkout, "3.7", f"3.{sys.version_info.minor}", "3.98")
    assert not chosen(checkout)


def test_ci_can_test_with_every_version_that_is_stated(checkout: Path, tmp_path: Path, root: Path):
    shutil.copy(root / "pyproject.toml", checkout)
    classifiers = tomllib.loads((root / "pyproject.toml").read_text())["project"]["classifiers"]
    stated = [name.removeprefix(NAME) for name in classifiers if name.startswith(NAME)]
    newer = {version for version in stated if int(version.removeprefix("3.")) > sys.version_info.minor}
    answers = set()
    for version in stated:
        write_interpreter(tmp_path / "bin", version)
    for _ in newer:
        commit(checkout)
        answers.add(chosen(checkout).partition(" ")[0])
    assert answers == newer


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
