"""One word for one thing: names in the code use the terms that ARCHITECTURE.md defines, and not those they replaced."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [ROOT / "client/shardcall", ROOT / "server/shardcall_server"]
REPLACED = {
    "alarm": "deadline timer",
    "alarms": "deadline timer",
    "blame": "quarantine",
    "companion": "segment broker",
    "door": "link listener",
    "intake": "operand reader",
    "holdings": "host resources",
    "journal": "call recorder",
    "ledger": "pending commands",
    "measurer": "autotuner",
    "readiness": "startup barrier",
}
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def names(tree: ast.AST) -> Iterator[str]:
    """Yields the names that a module defines: classes, functions, parameters, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_no_name_contains_a_word_that_was_replaced(source: Path) -> None:
    files = [file for file in source.rglob("*.py") if "v1" not in file.parts]
    found = {(str(file.relative_to(ROOT)), file.stem) for file in files if words(file.stem) & set(REPLACED)}
    for file in files:
        told = {name for name in names(ast.parse(file.read_text())) if words(name) & set(REPLACED)}
        found |= {(str(file.relative_to(ROOT)), name) for name in told}
    assert not found
