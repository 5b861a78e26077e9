"""Environments that `make` makes: the server's packages for the demo, the others for the tests, once for a version."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")]


@pytest.fixture
def checkout(tmp_path: Path, root: Path) -> Path:
    folder = tmp_path / "checkout"
    shutil.copytree(root / "requirements", folder / "requirements")
    for name in ("Makefile", "pyproject.toml", "client/shardcall/_version.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folder / name)
    return folder


def installs(checkout: Path, target: str, *variables: str) -> list[str]:
    """Returns the locks that ``make TARGET`` would install, in order, and leaves the stamps as if it had."""
    outer = {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTHON"}  # of the `make test` that runs this
    environment = {name: value for name, value in os.environ.items() if name not in outer}
    command = ["make", "--dry-run", "--no-print-directory", target, *variables]
    completed = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    locks = []
    for arguments in map(str.split, completed.stdout.splitlines()):
        locks += [
            Path(argument).stem
            for argument in arguments
            if argument.startswith("requirements/") and "--requirement" in arguments
        ]
        if "--clear" in arguments:
            shutil.rmtree(checkout / arguments[-1], ignore_errors=True)
        if arguments[:2] == ["rm", "-f"]:
            stale = [stamp for pattern in arguments[2:] for stamp in checkout.glob(pattern)]
            for stamp in stale:
                stamp.unlink()
        if arguments[:1] == ["touch"]:
            (checkout / arguments[1]).parent.mkdir(exist_ok=True)
            (checkout / arguments[1]).touch()
    return locks


def write_interpreter(path: Path, version: str) -> Path:
    """Writes a program that has a version of Python as its only answer; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def change(file: Path) -> None:
    file.write_text(file.read_text() + "# changed\n")


def test_the_demo_installs_the_server_and_the_tests_install_the_rest(checkout: Path):
    assert installs(checkout, "demo") == ["uv", "server", "build"]
    assert installs(checkout, "demo") == []
    assert installs(checkout, "test") == ["dev"]
    assert installs(checkout, "test") == installs(checkout, "demo") == []


def test_the_tests_may_come_first_and_an_environment_that_was_moved_is_created_again(checkout: Path):
    assert installs(checkout, "test") == ["uv", "server", "build", "dev"]
    assert installs(checkout, "demo") == []
    moved = checkout.rename(checkout.with_name("moved"))
    assert installs(moved, "demo") == ["uv", "server", "build"]
    assert installs(moved, "test") == ["dev"]


@pytest.mark.parametrize(
    ("changed", "demo", "test"),
    [
        ("requirements/uv.txt", ["uv", "server", "build"], ["dev"]),
        ("requirements/server.txt", ["server", "build"], ["dev"]),
        ("requirements/build.txt", ["server", "build"], ["dev"]),
        ("pyproject.toml", ["server", "build"], ["dev"]),
        ("client/shardcall/_version.py", ["server", "build"], ["dev"]),
        ("requirements/dev.txt", [], ["dev"]),
        ("requirements/protos.txt", [], []),
    ],
)
def test_what_has_changed_is_installed_again(checkout: Path, changed: str, demo: list[str], test: list[str]):
    installs(checkout, "test")
    change(checkout / changed)
    assert installs(checkout, "demo") == demo
    assert installs(checkout, "test") == test


def test_the_lock_needs_uv_alone(checkout: Path):
    change(checkout / "pyproject.toml")
    assert installs(checkout, "lock") == ["uv"]


def test_versions_of_python_have_environments_which_are_removed_together(checkout: Path, tmp_path: Path):
    other = f"PYTHON={write_interpreter(tmp_path / 'python3.99', '3.99')}"
    assert installs(checkout, "test") == installs(checkout, "test", other) == ["uv", "server", "build", "dev"]
    assert {folder.name for folder in checkout.glob(".venv*")} == {".venv", ".venv-3.99"}
    assert installs(checkout, "test") == installs(checkout, "test", other) == []
    subprocess.run(["make", "--no-print-directory", "clean"], cwd=checkout, capture_output=True, check=True)
    assert not list(checkout.glob(".venv*"))


def test_the_version_of_an_interpreter_and_not_its_name_decides(checkout: Path, tmp_path: Path):
    installs(checkout, "test")
    write_interpreter(checkout / ".venv/bin/python", "3.98")
    assert installs(checkout, "test", f"PYTHON={write_interpreter(tmp_path / 'same/python', '3.98')}") == []


def test_an_active_environment_of_another_version_is_not_taken_for_the_default(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    installs(checkout, "test")
    write_interpreter(checkout / ".venv/bin/python", "3.98")
    active = write_interpreter(tmp_path / "active/python3", "3.99").parent
    write_interpreter(active / "python3.99", "3.99")
    monkeypatch.setenv("PATH", f"{active}:{os.environ['PATH']}")
    assert installs(checkout, "test", "PYTHON=python3.99") == ["uv", "server", "build", "dev"]
    assert (checkout / ".venv-3.99").is_dir()
    assert installs(checkout, "test") == []


def test_an_interpreter_that_is_not_there_does_not_run_the_tests_in_the_default_environment(checkout: Path):
    installs(checkout, "test")
    assert installs(checkout, "test", "PYTHON=python3.no") == ["uv", "server", "build", "dev"]
    assert (checkout / ".venv-python3.no").is_dir()
