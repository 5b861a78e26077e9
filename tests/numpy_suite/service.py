"""NumPy's functions, answered by the service while a test runs.

Of a case that makes thousands of calls, a sample is sent: NumPy answers in a microsecond, the service in milliseconds.
A form is a function with its keywords and its operands' ranks and element types. Each of its shapes is a program of its
own, which takes a tenth of a second to compile.
"""

import re
import warnings
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy._core.umath
from end_to_end.numpy_comparison import MISSING
from end_to_end.numpy_names import redirected_functions
from numpy_suite import scope
from numpy_suite.numpy_calls import METHODS, call_of, finished
from numpy_suite.scope import OutOfScopeError

import shardcall as sc
from shardcall_core.functions.table import FUNCTIONS

SHAPES = 1
"""The number of shapes of a form that a case sends of arrays of fewer than 8 elements, and that of larger ones."""
CALLS, EVERY = 20, 50
"""The number of calls of one form and shape of which a case sends all, and that of which it then sends one."""

PROGRAMS, EVERY_PROGRAM = 12, 32
"""The number of forms and shapes of which a case sends all, and that of which it then sends one."""

Shape = tuple[int, ...]


class Sampling:
    """Calls that a case has sent so far.

    Args:
        complete: whether it sends everything.
    """

    def __init__(self, *, complete: bool) -> None:
        self._complete = complete
        self._shapes: Counter[Hashable] = Counter()
        self._calls: Counter[Hashable] = Counter()
        self._sent: dict[Hashable, bool] = {}

    def takes(self, form: Hashable, shapes: Sequence[Shape]) -> bool:
        """Returns whether the next call, of a form with operands of some shapes, is sent."""
        if self._complete:
            return True
        program = form, tuple(shapes)
        if program not in self._sent:
            self._sent[program] = self._takes_program(form, shapes)
        count = self._calls[program]
        self._calls[program] += 1
        return self._sent[program] and (count < CALLS or count % EVERY == 0)

    def _takes_program(self, form: Hashable, shapes: Sequence[Shape]) -> bool:
        kind = form, any(size >= 8 for shape in shapes for size in shape)
        self._shapes[kind] += 1
        count = len(self._sent)
        return self._shapes[kind] <= SHAPES and (count < PROGRAMS or count % EVERY_PROGRAM == 0)


_REFUSALS = ("mode='raw'", "pass q.get()", "stands for no value", "the only device is")
"""Parts of further messages about what the service refuses by name."""


class Service:
    """The server on which the functions run, and the outcomes of a test's calls.

    Attributes:
        client: where calls go; None where no test runs, and NumPy answers.
        remote: how often each function was called remotely.
        local: how often each rule left a call to NumPy.
        sampling: which calls are sent of a case that makes many.
        compared: the functions that NumPy has answered for subclasses.
        warnings_expected: whether a test expects a warning at this moment.
        error: the last one that the service raised.
    """

    def __init__(self) -> None:
        self.client: sc.Client | None = None
        self.remote: Counter[str] = Counter()
        self.local: Counter[str] = Counter()
        self.sampling = Sampling(complete=True)
        self.compared: set[str] = set()
        self.warnings_expected = False
        self.error: Exception | None = None

    @contextmanager
    def running(self, client: sc.Client, *, complete: bool) -> Iterator[None]:
        """Sends calls to a client during a test, all of them or a sample."""
        self.client, self.remote, self.local = client, Counter(), Counter()
        self.sampling, self.compared = Sampling(complete=complete), set()
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
    """One of NumPy's functions, or a method of a ufunc; everything except calls is answered by NumPy's own."""

    def __init__(self, name: str, function: Any) -> None:
        self._name = name
        self._function = function

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """The function's class, for `isinstance`."""
        return type(self._function)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._function, name)
        return RemoteFunction(f"{self._name}.{name}", value) if name in METHODS else value

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
            return self._remote(SERVICE.client, args, keywords)
        except OutOfScopeError as rule:
            SERVICE.local[str(rule)] += 1
            if str(rule) == scope.SUBCLASSES:
                SERVICE.compared.add(self._name)
            return self._function(*args, **keywords)

    def _remote(self, client: sc.Client, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        scope.check_error_state()
        if SERVICE.warnings_expected:
            raise OutOfScopeError(scope.WARNINGS)
        # Functions in a call are NumPy's own, so that the service, and not this class, redirects them.
        args = tuple(item._function if is_remote(item) else item for item in args)
        call = call_of(self._name, self._function, args, keywords)
        if self._name in SERVICE.compared:
            raise OutOfScopeError(scope.COMPARED)
        scope.check_algorithm(self._name, call.main, keywords, call.argument("kth"))
        scope.check_operands(self._name, call.operands)
        scope.check_dtype(call.argument("dtype"))
        if call.main is None and (self._name.partition(".")[2] in METHODS or call.argument("out") is not None):
            raise OutOfScopeError(scope.NUMBERS)
        if not SERVICE.sampling.takes(*call.form):
            raise OutOfScopeError(scope.SAMPLED)
        expected = None
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = call.expected()
        except Exception:  # noqa: BLE001  # the service is to refuse it too
            pass
        else:
            scope.check_result(self._name, expected, call.operands)
        try:
            result = finished(call.run(client), expected)
        except (sc.OutOfDeviceMemoryError, sc.ResourceExhaustedError):
            raise OutOfScopeError(scope.SIZES) from None
        except Exception as error:
            if any(part in str(error) for part in (*MISSING, *_REFUSALS)):
                raise OutOfScopeError(scope.REFUSED_FORMS) from None
            if (
                call.main is None
                and isinstance(error, TypeError)
                and re.search("argument|has no parameter", str(error))
            ):
                raise OutOfScopeError(scope.NUMBERS) from None
            SERVICE.remote[self._name] += 1
            SERVICE.error = error
            raise
        SERVICE.remote[self._name] += 1
        return result


NAMES = frozenset(redirected_functions()[0])
"""The functions that are remote, such as ``sum`` and ``linalg.inv``: all that arrays redirect to the service."""


def _function_of_numpy(name: str) -> Any:
    *parents, name = name.split(".")
    module: Any = np
    for parent in parents:
        module = getattr(module, parent)
    return getattr(module, name)


def _functions() -> dict[int, tuple[Any, RemoteFunction]]:
    """The functions by their identity; each is held, so that no other object takes its identity."""
    by_preference = sorted(NAMES, key=lambda name: ("." in name, name not in FUNCTIONS, name))
    named = [(name, _function_of_numpy(name)) for name in by_preference]
    named.append(("clip", np._core.umath.clip))
    return {id(function): (function, RemoteFunction(name, function)) for name, function in reversed(named)}


_FUNCTIONS = _functions()


def replaced(value: Any) -> Any:
    """Returns what stands for a value of NumPy's in its tests: a remote function for a function that the client has."""
    return _FUNCTIONS.get(id(value), (None, value))[1]


def is_remote(value: Any) -> bool:
    """Returns whether a value is a remote function."""
    return type(value) is RemoteFunction
