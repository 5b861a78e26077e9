"""The runs of tests against a change, in a tree of one function."""

import subprocess
from pathlib import Path

import pytest
from mutants.__main__ import NOTICED, TIMED_OUT, UNNOTICED, Copy
from mutants.mutations import Mutation, mutations

pytestmark = pytest.mark.long

SOURCE = """
def count(n):
    while n > 3:
        n -= 1
    return n
"""
FILE, TEST = "client/shardcall/counting.py", "tests/test_counting.py"
TESTS = """
from shardcall.counting import count

def test_fails_without_a_change_too():
    assert False

def test_counts():
    assert count(5) == 3
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree whose commit has tests, and whose files have one that checks nothing."""
    root = tmp_path_factory.mktemp("tree")
    for name, text in {
        FILE: SOURCE,
        TEST: TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\nmarkers = ['long']\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    author = ("-c", "user.name=a", "-c", "user.email=a@b")
    for command in (["init", "--quiet"], ["add", "."], [*author, "commit", "--quiet", "--message", "Add tests"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    (root / TEST).write_text("def test_checks_nothing(): pass\n")
    return root


def change(new: str) -> Mutation:
    (computed,) = (mutation for mutation in mutations(SOURCE) if mutation.new == new)
    return computed


def test_changes_are_noticed_by_the_tests_of_a_commit_and_not_by_those_of_the_tree(tree: Path, tmp_path: Path):
    with_tests = Copy(tree, tmp_path / "old", "HEAD", limit_s=600)
    assert with_tests.outcome(FILE, change("return None"), [TEST]) == (NOTICED, f"{TEST}::test_counts")
    assert with_tests.outcome(FILE, change("(n >= 3)"), [TEST]) == (NOTICED, f"{TEST}::test_counts")
    without = Copy(tree, tmp_path / "new", None, limit_s=600)
    assert without.outcome(FILE, change("return None"), [TEST]) == (UNNOTICED, "")
    assert (tree / FILE).read_text() == (with_tests.root / FILE).read_text() == SOURCE


def test_a_change_that_never_ends_is_stopped(tree: Path, tmp_path: Path):
    copy = Copy(tree, tmp_path, "HEAD", limit_s=5)
    assert copy.outcome(FILE, change("pass"), [TEST])[0] == TIMED_OUT
    assert (copy.root / FILE).read_text() == SOURCE
