"""The rules of the tests: which files are long, how many servers there are, what a run may take; tables of rows."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from forms import is_long
from rows import rows
from run_report import BUDGETS_S
from servers import PROFILES

TESTS = Path(__file__).resolve().parents[1]
MAX_PROFILES, MAX_SECONDS = 6, 1150
STARTING = {"running_server", "server_factory"}
"""The functions that start a server of a test's own."""
PUBLIC = {"_src", "_replace", "_asdict", "_fields", "_make", "_repr_html_", "_repr_svg_", "_exit"}
"""Attributes of named tuples, of notebooks and of `os` that are no private ones."""


def nodes(pattern: str) -> Iterator[tuple[str, ast.AST]]:
    """Yields the nodes of the files of tests whose text has a pattern, each with its file and line."""
    for file in TESTS.rglob("*.py"):
        if re.search(pattern, text := file.read_text()):
            name = file.relative_to(TESTS)
            yield from ((f"{name}:{getattr(node, 'lineno', 0)}", node) for node in ast.walk(ast.parse(text)))


def is_mark(node: ast.AST) -> bool:
    """Returns whether an expression is the mark `long`."""
    return isinstance(node, ast.Attribute) and ast.unparse(node) in ("pytest.mark.long", "mark.long")


def test_the_mark_long_is_at_the_head_of_a_file() -> None:
    uses = {place for place, node in nodes("mark.long") if is_mark(node)}
    heads = {
        f"{place.partition(':')[0]}:{mark.lineno}"
        for place, module in nodes("mark.long")
        if isinstance(module, ast.Module)
        for node in module.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        for mark in ast.walk(node.value)
        if is_mark(mark)
    }
    others = sorted(place for place in uses - heads if not place.startswith("conftest.py:"))
    assert others == []
    marked = {place.partition(":")[0] for place in heads}
    assert [name for name in marked if not is_long(TESTS / name)] == [], "the mark is on the line of `pytestmark =`"


def test_a_server_of_one_test_alone_has_a_reason() -> None:
    calls = [(place, node) for place, node in nodes("|".join(STARTING)) if isinstance(node, ast.Call)]
    starting = [(place, node) for place, node in calls if ast.unparse(node.func).split(".")[-1] in STARTING]
    assert starting
    without = sorted(place for place, node in starting if not {None, "why"} & {word.arg for word in node.keywords})
    assert without == []


def test_few_servers_are_shared() -> None:
    assert len(PROFILES) <= MAX_PROFILES


def test_every_folder_with_short_tests_has_a_budget_and_all_are_met_in_five_minutes() -> None:
    short = {file.parent.name for file in TESTS.glob("*/test_*.py") if not is_long(file)}
    assert sorted(BUDGETS_S) == sorted(short)
    assert sum(BUDGETS_S.values()) <= MAX_SECONDS


def test_few_lines_use_private_attributes_of_other_objects() -> None:
    """`client_parts` has the parts of clients."""
    lines = {
        f"{place.partition(':')[0]}:{node.end_lineno} {node.attr}"
        for place, node in nodes(r"(?<!self)(?<!cls)\._(?!_|src\b)")
        if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr) and node.attr not in PUBLIC
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }
    assert len({line.split()[0] for line in lines}) <= 150, "\n".join(sorted(lines))


def test_every_row_is_run_and_fixtures_are_passed_on() -> None:
    seen = []

    @rows("b", [10, 20])
    @rows(("a", "c"), [(1, 2), (3, 4)])
    def check(a: int, b: int, c: int, fixture: str) -> None:
        seen.append((a, b, c, fixture))

    assert list(inspect.signature(check).parameters) == ["fixture"]
    check(fixture="given")
    assert seen == [(1, 10, 2, "given"), (3, 10, 4, "given"), (1, 20, 2, "given"), (3, 20, 4, "given")]


def test_a_row_that_fails_fails_the_test_and_is_named() -> None:
    seen = []

    @rows("number", [1, 2, 3])
    def check(number: int) -> None:
        seen.append(number)
        assert number != 2, "two"

    with pytest.raises(AssertionError, match="two") as caught:
        check()
    assert caught.value.__notes__ == ["in the row (2,)"]
    assert seen == [1, 2, 3]


def test_all_rows_that_fail_are_reported() -> None:
    @rows("number", [1, 2, 3])
    def check(number: int) -> None:
        if number == 1:
            pytest.fail("one")
        assert number != 2, "two"

    with pytest.raises(BaseExceptionGroup, match="2 of 3 rows failed") as caught:
        check()
    assert [str(error).partition("\n")[0] for error in caught.value.exceptions] == ["one", "two"]


def test_a_table_has_rows_and_rows_have_a_value_for_every_name() -> None:
    with pytest.raises(AssertionError, match="without rows"):
        rows("x", [])
    with pytest.raises(ValueError, match="zip"):
        rows("x, y", [(1,)])(lambda x, y: None)()
