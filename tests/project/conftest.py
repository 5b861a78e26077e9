"""Fixtures of the tests of the project itself: its root, its files, and running commands."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Run = Callable[..., str]
Require = Callable[[bool, str], None]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs a command to its end and returns what it wrote; a failure shows all of it."""

    def run_command(*command: str | Path, cwd: Path = ROOT, timeout_s: float = 300) -> str:
        # A `make` above this one would pass its own flags and job slots down.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        ended = subprocess.run(
            [str(word) for word in command],
            check=False,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
        )
        assert ended.returncode == 0, f"{command} ended with {ended.returncode}:\n{ended.stdout}"
        return ended.stdout

    return run_command


@pytest.fixture(scope="session")
def run_python(run: Run) -> Callable[[str], str]:
    """Runs code in a fresh interpreter of this environment and returns what it printed."""
    return lambda code: run(sys.executable, "-c", code)


@pytest.fixture(scope="session")
def require() -> Require:
    """Skips a test if a tool is missing; fails it if all tests are requested."""

    def require_or_skip(present: bool, what: str) -> None:
        if not present and os.environ.get("REQUIRE_ALL_TESTS") == "1":
            pytest.fail(f"REQUIRE_ALL_TESTS=1, and there is no {what}")
        if not present:
            pytest.skip(f"needs {what}")

    return require_or_skip


@pytest.fixture(scope="session")
def files(run: Run, require: Require) -> Sequence[Path]:
    """Returns every file that git tracks or would, relative to the root."""
    require((ROOT / ".git").exists(), "git checkout")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]
