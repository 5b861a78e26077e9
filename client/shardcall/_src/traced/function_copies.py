"""Copies of the caller's functions that create arrays, for one trace: in them NumPy is another object."""

from __future__ import annotations

import functools
import operator
import os
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from shardcall._src.traced.creating_functions import NAMES
from shardcall._src.traced.references import FIXED, attribute_of, contents, used_by

_BY_TEXT = frozenset(("globals", "eval", "exec"))
"""Functions that read the variables of a module from its dict."""
_INSTALLED = (os.path.dirname(os.__file__), "site-packages", "dist-packages")


class FunctionCopies:
    """The functions of the caller as a trace calls them.

    A function that creates arrays by NumPy, or calls one that does, is run as a copy with the same code. The variables
    that the code reads are those of the function's module and closure at the time, but for NumPy, its functions that
    create arrays, and functions that are copied, too, also those of other modules. A method gets its object with such
    methods. A function that assigns global variables is not copied, since the assignment would not reach its module,
    and neither is one of an installed package.

    Args:
        replaced: what stands for NumPy and its functions, by the ids of these.
    """

    def __init__(self, replaced: Mapping[int, Any]) -> None:
        self._replaced = replaced
        # Each with its original, whose id no other object gets meanwhile.
        self._copies: dict[tuple[int, type], tuple[types.FunctionType, types.FunctionType]] = {}
        self._objects: dict[int, tuple[Any, Any]] = {}
        self._variables: dict[int, _Variables] = {}

    def release(self) -> None:
        """Forgets the copies, which refer to it, so that nothing waits for the collector of cycles."""
        self._replaced = {}
        self._copies.clear()
        self._objects.clear()
        self._variables.clear()

    def of(self, value: Any) -> Any:
        """Returns what the trace has in place of a value: a copy of a function, or the value itself."""
        if (replaced := self._replaced.get(id(value))) is not None or not self._replaced:
            return value if replaced is None else replaced
        if type(value) is functools.partial:
            return self._partial(value)
        if type(value) is types.ModuleType:
            return self._module(value)
        function = _function_of(value)
        if function is None:
            return value
        key = id(function), type(getattr(value, "__self__", None))
        if key not in self._copies:
            self._copies[key] = function, function
            if self._creates(value):
                self._copy(function, key)
        copied = self._copies[key][1]
        if copied is function:
            return value
        return types.MethodType(copied, self._object(value.__self__)) if type(value) is types.MethodType else copied

    def _partial(self, value: functools.partial[Any]) -> functools.partial[Any]:
        before = value.func, *value.args, *value.keywords.values()
        called, *after = map(self.of, before)
        if all(map(operator.is_, before, (called, *after))):
            return value
        count = len(value.args)
        return functools.partial(called, *after[:count], **dict(zip(value.keywords, after[count:], strict=True)))

    def _module(self, module: types.ModuleType) -> types.ModuleType:
        if not _is_of_caller(module.__name__, getattr(module, "__file__", None)):
            return module
        if id(module) not in self._objects:
            self._objects[id(module)] = module, _Module(module, self.of)
        return self._objects[id(module)][1]  # type: ignore[no-any-return]

    def _creates(self, value: Any) -> bool:
        """Returns whether a function, or one that it calls, refers to a function of NumPy that creates arrays."""
        for function, referenced in _reached(value):
            if not used_by(function.__code__).names.isdisjoint(NAMES):
                return True
            if any(id(item) in self._replaced and item is not np for item in referenced):
                return True
        return False

    def _copy(self, function: types.FunctionType, key: tuple[int, type]) -> None:
        variables = self._variables.setdefault(id(function.__globals__), _Variables(function.__globals__, self.of))
        written = used_by(function.__code__).written
        cells = [
            types.CellType() if name not in written and self._is_replaced(contents(cell)) else cell
            for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        ]
        copied = types.FunctionType(function.__code__, variables, function.__name__, closure=tuple(cells))
        self._copies[key] = function, copied  # before what may refer to it
        for cell, original in zip(cells, function.__closure__ or (), strict=True):
            if cell is not original:
                cell.cell_contents = self.of(original.cell_contents)
        copied.__qualname__ = function.__qualname__
        copied.__dict__ = vars(function)
        copied.__defaults__ = function.__defaults__ and tuple(map(self.of, function.__defaults__))
        defaults = function.__kwdefaults__
        copied.__kwdefaults__ = defaults and {name: self.of(value) for name, value in defaults.items()}

    def _is_replaced(self, value: Any) -> bool:
        return id(value) in self._replaced or self._creates(value)

    def _object(self, instance: Any) -> Any:
        """Returns an object with the attributes of another one, whose methods are copies."""
        cls = type(instance)
        if not _has_plain_attributes(cls):
            return instance
        if id(instance) not in self._objects:
            of = self.of
            names: dict[str, Any] = {
                "__getattribute__": lambda view, name: of(object.__getattribute__(view, name)),
                "__class__": property(lambda _: cls),
                "__module__": cls.__module__,
                "__slots__": (),
            }
            view: Any = object.__new__(type(cls.__name__, (cls,), names))
            object.__setattr__(view, "__dict__", vars(instance))
            self._objects[id(instance)] = instance, view
        return self._objects[id(instance)][1]


class _Module(types.ModuleType):
    """A module of the caller as a copied function sees it.

    Args:
        module: the module.
        of: returns what stands for a value.
    """

    def __init__(self, module: types.ModuleType, of: Callable[[Any], Any]) -> None:
        super().__init__(module.__name__, module.__doc__)
        vars(self).update(_module=module, _of=of)

    def __getattr__(self, name: str) -> Any:
        return self._of(getattr(self._module, name))

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._module, name, value)


class _Variables(dict[str, Any]):
    """The global variables of a module as a copied function sees them; Python calls `__getitem__` for each.

    Args:
        variables: the variables of the module.
        of: returns what stands for a value.
    """

    def __init__(self, variables: dict[str, Any], of: Callable[[Any], Any]) -> None:
        super().__init__(variables)  # which debuggers, the bodies of classes and Python itself read
        self._module = variables
        self._of = of

    def __getitem__(self, name: str) -> Any:
        return self._of(self._module[name])


def _function_of(value: Any) -> types.FunctionType | None:
    """Returns a function of the caller, or that of a method, if it can be copied."""
    function = value.__func__ if type(value) is types.MethodType else value
    # That of variables which are replaced is a copy, or was defined in one.
    if type(function) is not types.FunctionType or type(function.__globals__) is _Variables:
        return None
    code, used = function.__code__, used_by(function.__code__)
    if used.assigns_globals or not used.names.isdisjoint(_BY_TEXT):
        return None
    return function if _is_of_caller(str(function.__globals__.get("__name__")), code.co_filename) else None


def _is_of_caller(module: str, file: str | None) -> bool:
    """Returns whether a module is of the caller, and of no installed package; those of the interpreter have no file."""
    is_installed = file is None or any(folder in file for folder in _INSTALLED)
    return not is_installed and module.partition(".")[0] not in FIXED


def _reached(value: Any) -> Iterator[tuple[types.FunctionType, list[Any]]]:
    """Yields a function and those that can be copied among what it refers to, and so on, with what they refer to."""
    waiting: list[Any] = [value]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if type(value) is functools.partial:
            waiting.append(value.func)
        function = _function_of(value)
        if function is None or id(function) in seen:
            continue
        seen.add(id(function))
        referenced = _referenced(function)
        yield function, referenced
        waiting += referenced
        if type(value) is types.MethodType:
            attributes = (getattr(type(value.__self__), name, None) for name in used_by(function.__code__).names)
            waiting += [types.MethodType(item, value.__self__) for item in attributes if callable(item)]


def _referenced(function: types.FunctionType) -> list[Any]:
    """Returns the values of the variables that a function reads, of modules the attributes, and its defaults."""
    code, variables, values = function.__code__, function.__globals__, list[Any]()
    cells = dict(zip(code.co_freevars, map(contents, function.__closure__ or ()), strict=True))
    for name, chains in used_by(code).loads.items():
        values += [attribute_of(cells.get(name, variables.get(name)), chain) for chain in chains]
    return [*values, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _has_plain_attributes(cls: type) -> bool:
    """Returns whether a class is one of Python's simplest, whose objects have their attributes in a dict alone."""
    return (
        type(cls) is type
        and (cls.__basicsize__, cls.__dictoffset__) == (FunctionCopies.__basicsize__, FunctionCopies.__dictoffset__)
        and not any("__getattribute__" in vars(base) for base in cls.__mro__[:-1])
        and type(cls.__init_subclass__) is types.BuiltinMethodType  # defining a subclass has no effects
    )
