"""Packages that `make` installs into .venv: those of the server for the demo, and the others for the tests, once."""

from __future__ import annotations

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


def installs(checkout: Path, target: str) -> list[str]:
    """Returns the locks that ``make TARGET`` would install, in order, and leaves the stamps as if it had."""
    environment = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MFLAGS"}}
    command = ["make", "--dry-run", "--no-print-directory", target]
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


def change(file: Path) -> None:
    file.write_text(file.read_text() + "# changed\n")


def test_the_demo_installs_the_server_and_the_tests_install_the_rest(checkout: Path):
    assert installs(checkout, "demo") == ["uv", "server", "build"]
    assert installs(checkout, "demo") == []
    assert installs(checkout, "test") == ["dev"]
    assert installs(checkout, "test") == []
    assert installs(checkout, "demo") == []


def test_the_tests_may_come_first(checkout: Path):
    assert installs(checkout, "test") == ["uv", "server", "build", "dev"]
    assert installs(checkout, "demo") == []


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


def test_an_environment_that_was_moved_is_created_again(checkout: Path):
    installs(checkout, "test")
    moved = checkout.rename(checkout.with_name("moved"))
    assert installs(moved, "demo") == ["uv", "server", "build"]
    assert installs(moved, "test") == ["dev"]


def test_the_lock_needs_uv_alone(checkout: Path):
    change(checkout / "pyproject.toml")
    assert installs(checkout, "lock") == ["uv"]
