"""Prints the long test files that mirror what has changed since a commit, those of most changes first.

    cd tests && python -m mutants.changed [COMMIT]

Without a commit, changes count since the newest tag, or else since the merge base with the branch that the clone came
from; where these are missing or the newest commit itself, those of the last commits count.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

from forms import is_long
from mutants.mirror import Mirror, sources

ROOT = Path(__file__).resolve().parents[2]
FILES = 3
"""The long files for a source file, at most."""
COMMITS = 10
"""The last commits that count without a base."""


def _git(*arguments: str) -> str:
    """Returns what a command of git prints; nothing if it fails."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=False, capture_output=True, text=True).stdout.strip()


def base() -> str:
    """Returns the commit since which changes count, or nothing."""
    head = _git("rev-parse", "HEAD")
    tag, merge_base = _git("describe", "--tags", "--abbrev=0"), _git("merge-base", "HEAD", "origin/HEAD")
    for commit in (tag, merge_base, f"HEAD~{COMMITS}"):
        if commit and _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}") not in ("", head):
            return commit
    return ""


def long_tests(changed: list[str], root: Path = ROOT) -> list[str]:
    """Returns the long test files of changed files, those of most of them first; changed ones are their own.

    Args:
        changed: files, relative to the root.
        root: of the tree.
    """
    mirror, votes = Mirror(root, long=True), Counter[str]()
    written = {*sources(root)}
    for file in changed:
        if file in written:
            votes.update(mirror.tests(file, (), FILES))
        elif Path(file).name.startswith("test_") and (root / file).is_file() and is_long(root / file):
            votes[file] += 1
    return [file for file, _ in votes.most_common()]


if __name__ == "__main__":
    since = sys.argv[1] if len(sys.argv) > 1 else base()
    names = _git("diff", "--name-only", "--diff-filter=d", since, "HEAD").splitlines() if since else []
    print("\n".join(long_tests(names)))  # noqa: T201
