"""Test files that mirror a source file: those named like it, that import it, and that name the function in question."""

import ast
import re
from collections import Counter
from pathlib import Path

from forms import is_long

PACKAGES = ("client", "server")
_FOLDERS = {
    "client/shardcall_core": ("client", "server", "kernels", "end_to_end"),
    "client": ("client", "kernels", "end_to_end", "memory_model"),
    "server/shardcall_server/kernels": ("kernels", "end_to_end"),
    "server/shardcall_server/mesh": ("mesh", "server", "end_to_end"),
    "server": ("server", "mesh", "faults", "end_to_end"),
}
"""The folders of tests of the files in a folder; the first entry that fits counts."""
_EVERYTHING = "tests/end_to_end/test_calls.py"
"""Mirrors no file, and runs nearly all: it comes last."""
_COMMON = 15
"""An identifier that more test files than this have says nothing about what they test."""


def sources(root: Path) -> list[str]:
    """Returns the source files that people have written, relative to the root."""
    files = (file for package in PACKAGES for file in (root / package).rglob("*.py"))
    return sorted(str(file.relative_to(root)) for file in files if "_pb2" not in file.name)


class Mirror:
    """The test files that mirror source files, among those of the short form or among the others.

    Args:
        root: of the tree with both.
        long: True for the files that the short form leaves out.
    """

    def __init__(self, root: Path, *, long: bool = False) -> None:
        self._modules = {file: _module(file) for file in sources(root)}
        names = set(self._modules.values())
        self._imports = {_module(file): _imported((root / file).read_text(), names) for file in self._modules}
        folders = sorted({folder for folders in _FOLDERS.values() for folder in folders})
        files = (test for folder in folders for test in (root / "tests" / folder).glob("test_*.py"))
        texts = {test: test.read_text() for test in files if is_long(test) == long}
        self._sizes = {str(test.relative_to(root)): len(text) for test, text in texts.items()}
        self._tests = {str(test.relative_to(root)): _imported(text, names) for test, text in texts.items()}
        self._identifiers = {str(test.relative_to(root)): set(re.findall(r"\w+", text)) for test, text in texts.items()}
        self._frequency = Counter(name for identifiers in self._identifiers.values() for name in identifiers)

    def tests(self, file: str, scope: tuple[str, ...], count: int) -> list[str]:
        """Returns the test files nearest to a place in the source, the nearest first, of equal ones the shorter.

        Args:
            file: the source file.
            scope: the names of the classes and functions around the place.
            count: how many at most, besides one that mirrors everything.
        """
        folders = next(value for prefix, value in _FOLDERS.items() if file.startswith(prefix + "/"))
        identifiers = {name for name in (*scope, Path(file).stem) if len(name) > 2 and self._frequency[name] <= _COMMON}
        distances = self._distances(self._modules[file])
        scores: dict[str, float] = {}
        for test, imported in self._tests.items():
            near = min((distances[module] for module in imported if module in distances), default=None)
            score = 0.0 if near is None else 3 / (1 + near)
            score += 4 * (test.split("/")[1] in folders and _is_named_like(test, file))
            score += 2 * len(identifiers & self._identifiers[test]) ** 0.5
            if score and test.split("/")[1] in folders:
                scores[test] = score
        nearest = sorted(scores, key=lambda test: (-scores[test], self._sizes[test]))[:count]
        return nearest + [_EVERYTHING] * (_EVERYTHING in self._tests and _EVERYTHING not in nearest)

    def _distances(self, module: str) -> dict[str, int]:
        """Returns how many imports lead from each module that depends on this one to it."""
        distances, front = {module: 0}, [module]
        while front:
            front = [name for name, used in self._imports.items() if name not in distances and used.intersection(front)]
            distances |= dict.fromkeys(front, max(distances.values()) + 1)
        distances.pop("shardcall", None)  # every test imports it
        return distances


def _module(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts[1:]).removesuffix(".__init__")


def _is_named_like(test: str, file: str) -> bool:
    name, source = Path(test).stem.removeprefix("test_") + "_", Path(file).stem + "_"
    return name.startswith(source) or source.startswith(name)


def _imported(text: str, modules: set[str]) -> set[str]:
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            imported |= submodules or {node.module}
    return imported & modules
