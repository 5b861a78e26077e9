"""NumPy's functions, answered by the service while a test runs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy._core.umath
from numpy_suite import scope
from numpy_suite.numpy_calls import Call, bind_function, bind_ufunc, placement
from numpy_suite.sampling import Sampling
from numpy_suite.scope import OutOfScopeError

import shardcall as sc
from shardcall_core.functions.elementwise import BINARY, UNARY
from shardcall_core.functions.reductions import WITH_WHERE
from shardcall_core.functions.table import FUNCTIONS


class Service:
    """The server on which the functions run, and the outcomes of a test's calls.

    Attributes:
        client: where calls go; None where no test runs, and NumPy answers.
        remote: how often each function was called remotely.
        local: how often each rule left a call to NumPy.
        sampling: which calls are sent of a case that makes many.
        warnings_expected: whether a test expects a warning at this moment.
    """

    def __init__(self) -> None:
        self.client: sc.Client | None = None
        self.remote: Counter[str] = Counter()
        self.local: Counter[str] = Counter()
        self.sampling = Sampling(complete=True)
        self.warnings_expected = False

    @contextmanager
    def running(self, client: sc.Client, *, complete: bool, short: bool) -> Iterator[None]:
        """Sends calls to a client during a test, all of them or a sample."""
        self.client, self.remote, self.local = client, Counter(), Counter()
        self.sampling = Sampling(complete=complete, short=short)
        try:
            yield
        finally:
            self.client = None

    @contextmanager
    def expecting_warnings(self) -> Iterator[None]:
        """Leaves calls to NumPy, whose warnings are what is tested."""
        before, self.warnings_expected = self.warnings_expected, True
        try:
            yield
        finally:
            self.warnings_expected = before


SERVICE = Service()


class RemoteFunction:
    """One of NumPy's functions; everything except calls is answered by NumPy's own."""

    def __init__(self, name: str, function: Any) -> None:
        self._name = name
        self._function = function

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """The function's class, for `isinstance`."""
        return type(self._function)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._function, name)
        if name not in ("reduce", "accumulate", "reduceat", "outer", "at"):
            return value

        def method(*args: Any, **keywords: Any) -> Any:
            SERVICE.local[scope.METHODS] += 1
            return value(*args, **keywords)

        return method

    def __repr__(self) -> str:
        return repr(self._function)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._function

    def __hash__(self) -> int:
        return hash(self._function)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        if SERVICE.client is None:
            return self._function(*args, **keywords)
        try:
            call = self._call(args, keywords)
        except OutOfScopeError as rule:
            SERVICE.local[str(rule)] += 1
            return self._function(*args, **keywords)
        SERVICE.remote[self._name] += 1
        arrays = call.operands[1:] if self._name == "einsum" else call.operands
        main = next((item for item in arrays if _has_axes(item)), None)
        if main is None:  # numbers alone are on no mesh
            result = self._method()(*call.operands, **call.keywords, **placement(arrays, frozenset()))
            return call.finish(call.named(result.array))
        on_mesh = SERVICE.client.put(np.asarray(main), **placement([main], frozenset({"spec"})))
        named = {word: on_mesh if value is main else value for word, value in keywords.items()}
        results = self._function(*(on_mesh if value is main else value for value in args), **named)
        if isinstance(results, tuple | list):
            return tuple(item.get() for item in results)
        return call.finish(call.named(results.get()))

    def _method(self) -> Callable[..., Any]:
        functions: Any = SERVICE.client if self._name in FUNCTIONS else SERVICE.client.xp
        method: Callable[..., Any] = getattr(functions, self._name)
        return method

    def _call(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Call:
        scope.check_error_state()
        if SERVICE.warnings_expected:
            raise OutOfScopeError(scope.WARNINGS)
        if isinstance(self._function, np.ufunc):
            call = bind_ufunc(self._function, self._name, args, keywords)
        else:
            call = bind_function(self._function, self._name, args, keywords, self._method())
        arrays = call.operands[1:] if self._name == "einsum" else call.operands
        if self._name not in FUNCTIONS and not any(map(_has_axes, arrays)):
            raise OutOfScopeError(scope.NUMBERS)
        chosen = (call.keywords.get(word) for word in ("where", "initial"))
        scope.check_operands(self._name, [*arrays, *(value for value in chosen if value is not None)])
        if not SERVICE.sampling.takes(*self._form(call, arrays)):
            raise OutOfScopeError(scope.SAMPLED)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = self._function(*args, **keywords)
        except Exception:  # noqa: BLE001  # the service is to refuse it too
            return call
        scope.check_result(self._name, expected, arrays)
        call.result_type = getattr(expected, "dtype", None)
        return call

    def _form(self, call: Call, arrays: Sequence[Any]) -> tuple[Hashable, list[tuple[int, ...]]]:
        types = []
        for array in arrays:
            try:
                types.append(np.asarray(array))
            except Exception:  # noqa: BLE001  # the service is to refuse it
                types.append(np.zeros(0))
        subscripts = repr(call.operands[0]) if self._name == "einsum" else ""
        form = (self._name, subscripts, repr(call.keywords), *((item.dtype, item.ndim) for item in types))
        return form, [item.shape for item in types]


_OTHERS = ("argmax", "argmin", "where", "clip", "diff", "gradient", "cumsum", "convolve", "roll", "matmul", "einsum")
_OTHERS = (*_OTHERS, "transpose", "copy", "append", "delete", "insert", "diag")
NAMES = frozenset((*UNARY, *BINARY, *WITH_WHERE, *_OTHERS))
"""The functions that are remote."""


def _functions() -> dict[int, tuple[Any, RemoteFunction]]:
    """The functions by their identity; each is held, so that no other object takes its identity."""
    named = [(name, getattr(np, name)) for name in (*UNARY, *BINARY, *WITH_WHERE, *_OTHERS)]
    named += [("max", np.amax), ("min", np.amin), ("clip", np._core.umath.clip)]
    return {id(function): (function, RemoteFunction(name, function)) for name, function in reversed(named)}


_FUNCTIONS = _functions()


def replaced(value: Any) -> Any:
    """Returns what stands for a value of NumPy's in its tests: a remote function for a function that the client has."""
    return _FUNCTIONS.get(id(value), (None, value))[1]


def _has_axes(operand: Any) -> bool:
    try:
        return np.ndim(operand) > 0
    except Exception:  # noqa: BLE001  # what is no array is for the client to refuse
        return False


def is_remote(value: Any) -> bool:
    """Returns whether a value is a remote function."""
    return type(value) is RemoteFunction
