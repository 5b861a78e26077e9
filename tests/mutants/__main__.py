"""Changes the source at random, one place at a time, and counts how many changes the tests notice.

    make mutants ARGS="--count 60 --seed 1"
    make mutants ARGS="--count 60 --seed 1 --tests-from main"

The second command runs the tests of another commit against the same changes. All runs are in a copy of this tree.
"""

import argparse
import io
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mutants.mirror import PACKAGES, Mirror, sources
from mutants.mutations import Mutation, chosen, mutations

ROOT = Path(__file__).resolve().parents[2]
NOTICED, UNNOTICED, TIMED_OUT = "noticed", "NOT NOTICED", "timed out"
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)
_MARK = "MUTANTS_COPY"


class Copy:
    """A copy of the tree, with an environment that imports the copy's source.

    Args:
        root: of the tree.
        folder: where to make the copy.
        tests_from: the commit whose tests and pytest settings it has; None for this tree's.
        limit_s: when a run of tests has hung.
    """

    def __init__(self, root: Path, folder: Path, tests_from: str | None, limit_s: float) -> None:
        self.root, self._limit_s = folder / "tree", limit_s
        self._broken: set[str] = set()  # tests that fail without a change, too
        files = subprocess.check_output(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, text=True
        )
        for file in filter(None, files.split("\0")):
            if (root / file).is_file():
                (self.root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / file, self.root / file)
        if tests_from:
            shutil.rmtree(self.root / "tests")
            command = ["git", "archive", tests_from, "tests", "pyproject.toml"]
            with tarfile.open(fileobj=io.BytesIO(subprocess.check_output(command, cwd=root))) as archive:
                archive.extractall(self.root, filter="data")
        self._make_environment(folder / "venv")

    def _make_environment(self, folder: Path) -> None:
        """Makes an environment with this one's packages, but for the path of the source."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self._python = folder / "bin" / "python"
        inside = sysconfig.get_path("purelib", vars={"base": str(folder)})
        paths = [*(self.root / package for package in PACKAGES), sysconfig.get_path("purelib")]
        (Path(inside) / "mutants.pth").write_text("".join(f"{path}\n" for path in paths))
        self._environment = {**os.environ, _MARK: str(folder), "TMPDIR": str(folder.parent), "PYTHONPATH": ""}

    def outcome(self, file: str, mutation: Mutation, tests: list[str]) -> tuple[str, str]:
        """Returns whether the tests notice a change, and the first test that does."""
        while True:
            with self._changed(file, mutation):
                ended = self._run(*tests, *(f"--deselect={test}" for test in sorted(self._broken)))
            if ended is None:
                return TIMED_OUT, ""
            if ended.returncode in {0, 5}:  # 5: no test was left to run
                return UNNOTICED, ""
            failed = _FAILED.search(ended.stdout)
            if failed is None or failed[1] in self._broken:
                without = self._run(*tests, "--collect-only")
                if without is None or without.returncode != 0:
                    sys.exit(f"the tests cannot be run without a change either:\n{without and without.stdout}")
                return NOTICED, f"pytest ended with status {ended.returncode}"
            test = failed[1]
            alone = self._run(test, *([] if "::" in test else ["--collect-only"]))
            if alone is not None and alone.returncode == 0:
                return NOTICED, test
            self._broken.add(test)
            tests = [item for item in tests if item != test]

    @contextmanager
    def _changed(self, file: str, mutation: Mutation) -> Iterator[None]:
        source = (self.root / file).read_text()
        (self.root / file).write_text(mutation.apply(source))
        try:
            yield
        finally:
            (self.root / file).write_text(source)

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str] | None:
        """Runs tests up to the first failure; returns None if that takes too long."""
        options = ["-x", "-q", "-n0", "-p", "no:randomly", "--no-header", "--tb=no", "-rfE", "-m", "not long"]
        command = [self._python, "-m", "pytest", *options, *arguments]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                command, cwd=self.root, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                status = process.wait(self._limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                self._end_what_is_left()
                process.wait()
            output.seek(0)
            return subprocess.CompletedProcess(command, status, output.read())

    def _end_what_is_left(self) -> None:
        """Kills the processes of a run, known by their environment: a change may leave servers that do not end."""
        mark = f"{_MARK}={self._environment[_MARK]}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue  # it has ended, or is another user's


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="mutants", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=60, help="of changes")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds draw equal changes of equal source")
    parser.add_argument("--tests-from", metavar="COMMIT", help="run the tests of this commit, not this tree's")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(ROOT, Path(folder), options.tests_from, limit_s=300)
        by_file = {file: mutations((copy.root / file).read_text()) for file in sources(copy.root)}
        drawn = chosen(by_file, options.count, options.seed)
        mirror = Mirror(copy.root)
        totals: Counter[str] = Counter()
        for number, (file, mutation) in enumerate(drawn, 1):
            tests = mirror.tests(file, mutation.scope, 5)
            print(f"{number}/{len(drawn)} {file}:{mutation.line}  {mutation}", flush=True)  # noqa: T201
            began = time.monotonic()
            outcome, test = copy.outcome(file, mutation, tests)
            totals[outcome] += 1
            print(f"    {outcome} {test} ({time.monotonic() - began:.0f} s)", flush=True)  # noqa: T201
    share = totals[NOTICED] / len(drawn)
    print(f"{totals[NOTICED]} of {len(drawn)} noticed ({share:.0%}), {totals[TIMED_OUT]} timed out")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
