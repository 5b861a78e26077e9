"""Newer versions of Python in CI: commits alternate between those that pyproject.toml states and the machine has."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

NAME = "Programming Language :: Python :: "
GIT = ["git", "-c", "user.name=a", "-c", "user.email=b@c"]


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    """A repository with one commit that states some versions of Python, of which 3.98 and 3.99 do not exist yet."""
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
    """What CI is told: a version and the path of its interpreter, or nothing."""
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
