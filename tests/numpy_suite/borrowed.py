"""NumPy's test modules, out of the installed wheel, with NumPy's functions replaced."""

import ast
import builtins
import importlib.util
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import hypothesis
import numpy as np
import pytest
from numpy_suite.service import SERVICE, is_remote, replaced

EXAMPLES = 20
"""Of a property: most have a shape of their own, and so a program."""


class _Numpy(ModuleType):
    """A module of NumPy's whose functions are remote."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__)
        ufuncs = {name: value for name, value in vars(module).items() if isinstance(value, np.ufunc)}
        self.__dict__.update({name: replaced(value) for name, value in ufuncs.items()}, _module=module)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name in _STANDINS:
            return _STANDINS[name]
        if isinstance(value, ModuleType) and value.__name__.partition(".")[0] == "numpy":
            return _Numpy(value)
        return replaced(value)

    def __dir__(self) -> list[str]:
        return dir(self._module)


class _Pytest(ModuleType):
    """pytest, but texts of errors may be the service's own, and warnings are NumPy's."""

    def __getattr__(self, name: str) -> Any:
        return _STANDINS.get(name, getattr(pytest, name))


@contextmanager
def _raising(expected: Any, match: str | None) -> Iterator[Any]:
    with pytest.raises(expected) as info:
        yield info
    if match is not None and info.value is not SERVICE.error:
        assert re.search(match, str(info.value))


def _raises(expected: Any, *args: Any, match: str | None = None, **keywords: Any) -> Any:
    if not args:
        return _raising(expected, match)
    with _raising(expected, match) as info:
        args[0](*args[1:], **keywords)
    return info


def _assert_raises_regex(expected: Any, match: str, *args: Any, **keywords: Any) -> Any:
    return _raises(expected, *args, match=match, **keywords)


def _warns(*args: Any, **keywords: Any) -> Any:
    if callable(args[1] if len(args) > 1 else None):
        with SERVICE.expecting_warnings():
            return pytest.warns(*args, **keywords)
    return _warning(*args, **keywords)


@contextmanager
def _warning(*args: Any, **keywords: Any) -> Iterator[Any]:
    with SERVICE.expecting_warnings(), pytest.warns(*args, **keywords) as caught:
        yield caught


def _assert_warns(expected: Any, *args: Any, **keywords: Any) -> Any:
    if not args:
        return _warning(expected)
    with _warning(expected):
        return args[0](*args[1:], **keywords)


class _Warnings(ModuleType):
    """warnings, but those that are recorded are NumPy's."""

    def __getattr__(self, name: str) -> Any:
        return _catch_warnings if name == "catch_warnings" else getattr(warnings, name)


@contextmanager
def _catch_warnings(*, record: bool = False, **keywords: Any) -> Iterator[Any]:
    with ExitStack() as stack:
        if record:
            stack.enter_context(SERVICE.expecting_warnings())
        yield stack.enter_context(warnings.catch_warnings(record=record, **keywords))


class _Mark:
    """pytest.mark; its parametrize takes iterators too, which pytest is about to refuse."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pytest.mark, name)

    def parametrize(self, argnames: Any, argvalues: Any, **keywords: Any) -> pytest.MarkDecorator:
        return pytest.mark.parametrize(argnames, list(argvalues), **keywords)


_STANDINS = {
    "mark": _Mark(),
    "raises": _raises,
    "warns": _warns,
    "assert_warns": _assert_warns,
    "assert_raises_regex": _assert_raises_regex,
}


def _import(name: str, *args: Any, **keywords: Any) -> ModuleType:
    module = builtins.__import__(name, *args, **keywords)
    if module.__name__.partition(".")[0] == "numpy":
        return _Numpy(module)
    return _Pytest("pytest") if module is pytest else _Warnings("warnings") if module is warnings else module


def borrow(name: str) -> dict[str, Any]:
    """Runs a test module anew with NumPy's functions replaced.

    Returns:
        Those of its tests whose code names a function that the client has, and their marks.
    """
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    module = ModuleType(name)
    module.__dict__.update(
        __file__=spec.origin, __package__=spec.parent, __builtins__={**vars(builtins), "__import__": _import}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)  # of matrices
        exec(compile(tree, spec.origin, "exec"), vars(module))
    chosen = {node.name for node in tree.body if _is_test(node) and _calls_one(node, vars(module))}
    for test in filter(_is_property, _tests(vars(module))):
        hypothesis.settings(deadline=None, max_examples=EXAMPLES, derandomize=True, database=None)(test)
    entries = {key: value for key, value in vars(module).items() if key in chosen}
    return entries | {"pytestmark": pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")}


def _tests(names: dict[str, Any]) -> Iterator[Any]:
    for value in names.values():
        yield from vars(value).values() if isinstance(value, type) else [value]


def _is_property(value: Any) -> bool:
    return isinstance(value, FunctionType) and getattr(value, "is_hypothesis_test", False) is True


def _is_test(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name.lower().startswith("test")


def _calls_one(definition: ast.AST, names: dict[str, Any]) -> bool:
    """True if a definition mentions a remote function, by its own name or as an attribute of a module."""
    for node in ast.walk(definition):
        if isinstance(node, ast.Name) and is_remote(names.get(node.id)):
            return True
        module = _value(node.value, names) if isinstance(node, ast.Attribute) else None
        if module is not None and is_remote(getattr(module, node.attr, None)):
            return True
    return False


def _value(node: ast.AST, names: dict[str, Any]) -> Any:
    """The module that an expression is, None for others."""
    if isinstance(node, ast.Attribute) and (module := _value(node.value, names)) is not None:
        return getattr(module, node.attr, None)
    target = names.get(node.id) if isinstance(node, ast.Name) else None
    return target if isinstance(target, _Numpy) else None
