"""Runs the tests of the Python array API standard: python suite.py [--full] [--sharded] [arguments of pytest].

Examples are the same in every run: 3 a test, 40 with ``--full``. Arrays have at most 64 elements, since each shape is
compiled. What may fail is listed in expected_failures.txt, with the reasons; with 40 examples and one device it has to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITE = HERE.parent / "third_party" / "array_api_tests"
FAILURES = HERE / "expected_failures.txt"
STANDARD = "2024.12"
FULL = 40


def command(examples: int, *arguments: str, is_strict: bool = False) -> list[str]:
    """Returns the command that runs tests of the suite.

    Args:
        examples: the number of examples of a test.
        arguments: those of pytest, such as the files below the suite's folder; by default all of them.
        is_strict: True for expected failures that pass to fail.
    """
    options = ["--hypothesis-disable-deadline", "--hypothesis-derandomize", f"--hypothesis-max-examples={examples}"]
    settings = ["-c", str(HERE / "suite.ini"), f"--rootdir={SUITE}", f"--xfails-file={FAILURES}"]
    settings += ["-o", f"xfail_strict={is_strict}"]
    files = [] if any(".py" in argument for argument in arguments) else ["array_api_tests"]
    return [sys.executable, "-m", "pytest", "-q", *settings, *options, *files, *arguments]


def run(examples: int, *arguments: str, sharded: bool = False) -> subprocess.CompletedProcess[str]:
    """Runs tests of the suite and returns their output; arguments are those of `command`."""
    environment = {
        **os.environ,
        "ARRAY_API_TESTS_MODULE": "subject.xp",
        "ARRAY_API_TESTS_VERSION": STANDARD,
        "ARRAY_API_TESTS_MAX_ARRAY_SIZE": "64",
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SHARDCALL_TESTS_PLACEMENT": "sharded" if sharded else "default",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(
        # A few examples do not reach every expected failure, nor do those of sharded arrays.
        command(examples, *arguments, is_strict=examples >= FULL and not sharded),
        cwd=SUITE,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )


def main(arguments: Sequence[str]) -> int:
    """Runs all tests, and returns the exit status of pytest."""
    own = {"--full", "--sharded"}
    done = run(
        FULL if "--full" in arguments else 3, *(a for a in arguments if a not in own), sharded="--sharded" in arguments
    )
    sys.stdout.write(done.stdout)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
