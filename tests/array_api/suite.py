"""Runs a checkout of array-api-tests over ``client.xp``: suite.py FOLDER [--full] [--sharded] [arguments of pytest].

Examples are the same in every run: 3 a test, 40 with ``--full``. Arrays have at most 64 elements, since each shape is
compiled. What may fail is listed in expected_failures.txt, with the reasons; with 40 examples and one device it has to.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
FAILURES = HERE / "expected_failures.txt"
STANDARD = "2024.12"
FULL = 40
PACKAGES = ("hypothesis", "ndindex", "pytest_jsonreport")
REPOSITORY = "https://github.com/data-apis/array-api-tests"
INSTALL = "python -m pip install ndindex pytest-json-report"


def why_not(suite: str) -> str | None:
    """Returns why the tests in a folder cannot run, and what to do; None if they can."""
    usage = (
        f"git clone --recurse-submodules {REPOSITORY} ../array-api-tests; make test-array-api SUITE=../array-api-tests"
    )
    if not suite:
        return f"SUITE is not set; give the folder of a checkout of array-api-tests: {usage}"
    folder = Path(suite)
    if not (folder / "array_api_tests").is_dir():
        return f"SUITE={suite} has no folder array_api_tests; give the folder of a checkout of array-api-tests: {usage}"
    if not (folder / "array-api" / "spec" / STANDARD).is_dir():
        return f"SUITE={suite} lacks version {STANDARD} of the standard: git -C {suite} submodule update --init"
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        return f"array-api-tests needs {' and '.join(missing)}: {Path(sys.executable).parent}/{INSTALL}"
    return None


def run(suite: Path, examples: int, *arguments: str, sharded: bool) -> int:
    """Runs tests of the suite and returns the exit status of pytest.

    Args:
        suite: the folder of its checkout.
        examples: the number of examples of a test.
        *arguments: those of pytest, such as the files below the suite's folder; by default all of them.
        sharded: True for arrays that are sharded.
    """
    environment = {
        **os.environ,
        "ARRAY_API_TESTS_MODULE": "subject.xp",
        "ARRAY_API_TESTS_VERSION": STANDARD,
        "ARRAY_API_TESTS_MAX_ARRAY_SIZE": "64",
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "SHARDCALL_TESTS_PLACEMENT": "sharded" if sharded else "default",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    options = ["--hypothesis-disable-deadline", "--hypothesis-derandomize", f"--hypothesis-max-examples={examples}"]
    options += ["-c", str(HERE / "suite.ini"), f"--rootdir={suite}", f"--xfails-file={FAILURES}"]
    # A few examples do not reach every expected failure, nor do those of sharded arrays.
    options += ["-o", f"xfail_strict={examples >= FULL and not sharded}"]
    files = [] if any(".py" in argument for argument in arguments) else ["array_api_tests"]
    tests = [sys.executable, "-m", "pytest", "-q", *options, *files, *arguments]
    return subprocess.run(tests, cwd=suite, env=environment, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Runs the tests in a folder, and returns the exit status of pytest, or 2 if they cannot run."""
    parser = argparse.ArgumentParser(prog="suite.py", allow_abbrev=False)
    parser.add_argument("suite", nargs="?", default="")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--sharded", action="store_true")
    options, others = parser.parse_known_args(arguments)
    if problem := why_not(options.suite):
        sys.stderr.write(f"{problem}\n")
        return 2
    return run(Path(options.suite).resolve(), FULL if options.full else 3, *others, sharded=options.sharded)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
