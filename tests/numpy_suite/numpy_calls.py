"""Calls of NumPy's functions, with the first of their arrays on the mesh."""

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from end_to_end.numpy_names import CHANGING
from numpy_suite import scope
from numpy_suite.scope import OutOfScopeError

import shardcall as sc
from shardcall import P

METHODS = ("reduce", "accumulate", "reduceat", "outer", "at")
"""The methods of ufuncs."""

_SEQUENCES = frozenset(("arrays", "tup", "arys", "condlist", "multi_index", "sample"))
"""First parameters that are sequences of arrays."""

_OTHERS = (str, bytes, type, np.dtype, slice, dict, type(None), type(Ellipsis))
"""Classes of arguments that are no arrays."""


@dataclass(frozen=True)
class Call:
    """A call of a function, or of a method of a ufunc.

    Attributes:
        name: of the function, such as ``linalg.inv`` or ``add.reduce``.
        function: NumPy's.
        args: its arguments by position.
        keywords: its arguments by name.
        parameters: the name of each argument by position; empty where it has none.
        changes: whether it changes its first argument.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    parameters: tuple[str, ...]
    changes: bool

    @property
    def operands(self) -> list[Any]:
        """The arguments that are arrays or may stand for them, the first one of the function among them."""
        return [value for name, value, is_first in self._arguments() if is_first or _is_operand(name, value)]

    @property
    def main(self) -> Any:
        """The array that is put on the mesh: the first one, or the first list; None where there are only numbers."""
        for name, value, is_first in self._arguments():
            if is_first and name in _SEQUENCES and isinstance(value, list | tuple):
                lists = value if self.name != "block" else ()  # whose lists say where its arrays are
                items = [item for item in _leaves(value) if _has_axes(item)] or [*filter(_is_list, lists)]
                if items:
                    return items[0]
            elif (type(value) is np.ndarray and value.ndim) or (is_first and _is_list(value)):
                return value
        return None

    @property
    def targets(self) -> list[np.ndarray]:
        """The arrays of this process that the call writes to."""
        out = self.argument("out")
        targets = [*(out if isinstance(out, tuple) else (out,)), self._first if self.changes else None]
        return [target for target in targets if isinstance(target, np.ndarray)]

    @property
    def form(self) -> tuple[Hashable, list[tuple[int, ...]]]:
        """The parts of the call that decide its program, but the shapes of operands; and these shapes."""
        arrays, others = [], [self.name]
        for name, value, is_first in self._arguments():
            if is_first or _is_operand(name, value):
                try:
                    arrays.append(np.asarray(value))
                except Exception:  # noqa: BLE001  # the service is to refuse it
                    others.append(repr(value))
            else:
                others.append(f"{name}={value!r}")
        return (*others, *((item.dtype, item.ndim) for item in arrays)), [item.shape for item in arrays]

    def argument(self, name: str) -> Any:
        """Returns an argument by its name; None where it is left out."""
        by_position = dict(zip(self.parameters, self.args, strict=False))
        return self.keywords.get(name, by_position.get(name))

    def expected(self) -> Any:
        """Returns NumPy's result, computed from copies of the arrays that the call changes."""
        copies: dict[int, Any] = {id(target): target.copy() for target in self.targets}
        return self._with(copies)

    def run(self, client: sc.Client) -> Any:
        """Returns the service's result, of the first array on the mesh."""
        main = self.main
        if main is None:
            function: Any = client.xp
            for part in self.name.split("."):
                function = getattr(function, part)
            return function(*self.args, **self.keywords)
        on_mesh = client.put(np.asarray(main), **_placement(np.shape(main)))
        result = self._with({id(main): on_mesh}, self.argument("out"))
        if self.changes and self._first is main:
            main[...] = on_mesh.get()
        return result

    def _with(self, others: Mapping[int, Any], out: Any = None) -> Any:
        """Calls the function with other arrays in place of some, by their identity.

        Args:
            others: the arrays, by the identities of those that they replace.
            out: the argument of that name, if it is to stay.
        """
        names = [*self.parameters, *[""] * len(self.args)]
        args = [
            value if name == "out" and out is not None else _exchanged(value, others)
            for name, value in zip(names, self.args, strict=False)
        ]
        keywords = {
            name: value if name == "out" and out is not None else _exchanged(value, others)
            for name, value in self.keywords.items()
        }
        return self.function(*args, **keywords)

    @property
    def _first(self) -> Any:
        return self.args[0] if self.args else next(iter(self.keywords.values()), None)

    def _arguments(self) -> Iterator[tuple[str, Any, bool]]:
        """Yields the name and the value of each argument but ``out``, and whether it is the first one."""
        names = [*self.parameters, *[""] * (len(self.args) - len(self.parameters))]
        for index, (name, value) in enumerate([*zip(names, self.args, strict=False), *self.keywords.items()]):
            if name != "out":
                is_array = not _is_function(value) and not (self.name == "einsum" and isinstance(value, str))
                yield name, value, index == 0 and is_array


def call_of(name: str, function: Callable[..., Any], args: tuple[Any, ...], keywords: Mapping[str, Any]) -> Call:
    """Returns a call.

    Raises:
        OutOfScopeError: for arguments that Python itself refuses, and those about memory.
    """
    method = name.rpartition(".")[2]
    if isinstance(function, np.ufunc):
        if len(args) < function.nin:
            raise OutOfScopeError(scope.REFUSED)
        parameters = (*(f"x{i}" for i in range(1, function.nin + 1)), "out")
        out = args[function.nin :]
        if out:  # by position, one for each result
            rest = [None] * (function.nout - len(out))
            args, keywords = args[: function.nin], {**keywords, "out": (*out, *rest)}
    else:
        signature = inspect.signature(function)
        try:
            bound = signature.bind(*args, **keywords)
        except TypeError:
            raise OutOfScopeError(scope.REFUSED) from None
        named = [p.name for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_POSITIONAL]
        has_further = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in signature.parameters.values())
        parameters = () if has_further else tuple(named)
        if name in CHANGING and isinstance(next(iter(bound.arguments.values()), None), list):
            raise OutOfScopeError(scope.REFUSED)
        if name == "where" and any(value is None for value in args):
            raise OutOfScopeError(scope.ELEMENT_TYPES)
        if any(isinstance(value, Iterator) for value in bound.arguments.values()):
            raise OutOfScopeError(scope.ITERATORS)
    if not isinstance(keywords.get("optimize", False), bool | str):
        raise OutOfScopeError(scope.PATHS)
    if name == "clip" and len({"a_min", "a_max"}.intersection((*parameters[: len(args)], *keywords))) == 1:
        raise OutOfScopeError(scope.REFUSED)  # by the function itself; one bound is enough for the service
    call = Call(name, function, args, keywords, parameters, method == "at" or name in CHANGING)
    scope.check_memory(call.argument("order"), call.argument("subok"), call.targets, call.operands)
    return call


def finished(result: Any, expected: Any) -> Any:
    """Returns a result in this process, of the classes that NumPy's has: a number where it has one."""
    if isinstance(result, tuple) and isinstance(expected, tuple) and len(result) == len(expected):
        items = map(finished, result, expected)
        return type(expected)(*items) if hasattr(expected, "_fields") else tuple(items)
    if isinstance(result, list) and isinstance(expected, list) and len(result) == len(expected):
        return [*map(finished, result, expected)]
    if isinstance(result, tuple | list):
        return type(result)(finished(item, None) for item in result) if type(result) in (tuple, list) else result
    if not isinstance(result, sc.RemoteArray):
        return result
    array = result.get()
    if isinstance(expected, list):
        return array.tolist()
    dtype = getattr(expected, "dtype", None)
    if dtype is not None and array.dtype == dtype:
        array = array.view(dtype)  # C's long and long long are two names of one type, and equal
    if isinstance(expected, bool | int | float | complex) and not isinstance(expected, np.generic) and not array.ndim:
        return type(expected)(array[()])
    return array[()] if isinstance(expected, np.generic) or expected is None else array


def _placement(shape: tuple[int, ...]) -> dict[str, Any]:
    """Returns the mesh over which an array is sharded, and its spec.

    Matrices are sharded along both axes, over 2 and 4 devices; vectors over 8, or over 3 where they have fewer rows:
    most sizes of NumPy's tests divide by neither.
    """
    if len(shape) >= 2:
        return {"mesh": sc.Mesh(a=2, b=4), "spec": P("a", "b")}
    return {"mesh": sc.Mesh(x=8 if shape and shape[0] >= 8 else 3)}


def _exchanged(value: Any, others: Mapping[int, Any]) -> Any:
    if id(value) in others:
        return others[id(value)]
    if type(value) in (list, tuple):
        items = [_exchanged(item, others) for item in value]
        is_same = all(item is before for item, before in zip(items, value, strict=True))
        return value if is_same else type(value)(items)
    return value


def _is_function(value: Any) -> bool:
    """Returns whether a value is a function; polynomials of NumPy's can be called, too."""
    return callable(value) and not hasattr(value, "__array__")


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) and _has_axes(value)


def _has_axes(operand: Any) -> bool:
    try:
        return not isinstance(operand, _OTHERS) and np.ndim(operand) > 0
    except Exception:  # noqa: BLE001  # what is no array is for the client to refuse
        return False


def _is_operand(name: str, value: Any) -> bool:
    """Returns whether an argument behind the first one is an array, or a number for one."""
    if name in ("axis", "axes", "dtype", "mode", "shape") or isinstance(value, _OTHERS) or _is_function(value):
        return False
    return not isinstance(value, bool) or name.startswith("x")
