"""Arrays of a traced function."""

from __future__ import annotations

import dis
import sys
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from shardcall._src.device_arrays.array_version import ArrayVersion, ReplacedValues
from shardcall._src.device_arrays.call_sites import frame_of_caller
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.rpc.deadline import Deadline
from shardcall_core.graphs.graph import Value
from shardcall_core.placements.placement import MeshPlacement
from shardcall_core.types.errors import ShardcallError, TracingError

MAX_ROWS = 64
"""The most iterations of a loop over an array, each of which becomes part of the program."""

_PACKAGE = __name__.partition(".")[0]
_BRANCH = (
    "use np.where or xp.cond in place of if, xp.while_loop in place of while, & and | in place of and and or, "
    "np.maximum in place of max; return what the caller is to see, or name an argument in static=…"
)
_CONVERSION = "compute with the array as it is, or return it from the function and convert what a call of that returns"
_JOIN = "use the array as it is; xp.stack and xp.concatenate join several"
_ASSIGNMENT = (
    "create the array by np.zeros(n) in the function or in one that it calls by its name, or anywhere by "
    "xp.zeros_like(u); begin with z = xp.asarray(z), or pass it as an argument, which gets the values after the call"
)
_ASSIGNMENTS = frozenset(dis.opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in dis.opmap)
_SIZE = (
    "keep all elements, as xp.where(mask, x, 0) does; take rows from a computed index by np.take(x, i + np.arange(n), "
    "axis=0); or return x from the function and compute this of what a call of that returns"
)
_COPY = (
    "write t = t + u in place of t += u or out=t, pass t as an argument, which gets the values after the call, or "
    "begin with t = xp.asarray(t)"
)


class ArrayTrace(Protocol):
    """The trace of a function.

    Attributes:
        name: the name of the function, with its file and line.
        is_closed: True after the trace.
        has_open_body: True while the body of a loop or branch is traced.
    """

    name: str
    is_closed: bool
    has_open_body: bool

    def present(self) -> AbstractContextManager[None]:
        """Adds the calls of a block to this trace."""


class TracedResult:
    """Stands for a value of a graph, of which nothing is known but its type.

    Attributes:
        trace: the trace that it belongs to.
        value: the value.
    """

    is_done = is_failed = is_recorded = is_undoable = is_undone = False
    written: weakref.ref[ReplacedValues] | None = None

    def __init__(self, trace: ArrayTrace, value: Value) -> None:
        self.trace = trace
        self.value = value

    def begin(self) -> NoReturn:
        """Raises TracingError: there is no array."""
        self.refuse("this operation")

    def placement(self, index: int, deadline: Deadline | None) -> MeshPlacement:
        """Raises TracingError: there is no placement."""
        self.refuse("its handle, mesh or sharding" if not self.trace.is_closed else "it")

    def dependent_failure(self, error: ShardcallError) -> ShardcallError:
        """Returns the error."""
        return error

    def replaces(self, before: ArrayVersion) -> None:
        """Does nothing: values of a graph stay."""

    def refuse(self, what: str, instead: str = _BRANCH) -> NoReturn:
        """Raises TracingError.

        Args:
            what: what needs a value.
            instead: what to write in its place.
        """
        if self.trace.is_closed:
            raise TracingError(
                f"an array of the trace of {self.trace.name} was used after it: it stands for no values; return it "
                "from the function, and use what a call of the function returns. In place of a list that the body of a "
                "loop fills, use xp.scan"
            )
        raise TracingError(
            f"{what} needs values of an array, which are not known while {self.trace.name} is traced; {instead}"
        )


class TracedArray(RemoteArray):
    """An array of a function that is being traced; has a type, and no values.

    Attributes:
        _argument: the name of the argument of a transformed function that it is; empty if it is none.
    """

    _is_traced = True
    _argument = ""

    @property
    def _traced(self) -> TracedResult:
        result = self._version.pending
        assert isinstance(result, TracedResult)
        return result

    @property
    def _result(self) -> TracedResult:
        """The values of its base."""
        result = self._store.version.pending
        assert isinstance(result, TracedResult)
        return result

    @property
    def _trace(self) -> ArrayTrace:
        """The trace that it belongs to."""
        return self._result.trace

    def _view_version(self) -> ArrayVersion:
        with self._trace.present():  # and not in the body of a loop that is traced now
            return super()._view_version()

    def get(self, *, timeout: float | None = None) -> NoReturn:
        """Raises TracingError."""
        self._refuse("get()")

    def _get_implicitly(self) -> None:
        """Returns None: there are no values."""

    def to_numpy(self) -> NoReturn:
        """Raises TracingError."""
        self._refuse("to_numpy()")

    def item(self, *args: Any) -> NoReturn:
        """Raises TracingError."""
        self._refuse("item()")

    def tolist(self) -> NoReturn:
        """Raises TracingError."""
        self._refuse("tolist()")

    def tobytes(self, order: str | None = None) -> NoReturn:
        """Raises TracingError."""
        self._refuse("tobytes()")

    def __int__(self) -> NoReturn:
        self._refuse("int()")

    def __float__(self) -> NoReturn:
        self._refuse("float()")

    def __complex__(self) -> NoReturn:
        self._refuse("complex()")

    def __index__(self) -> NoReturn:  # noqa: PLE0305  # it raises
        self._refuse("an index of a list, a size or range()")

    def __format__(self, spec: str) -> str:
        return super().__format__(spec) if not spec else self._refuse("a format")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        self._refuse_assignment()
        self._traced.refuse("numpy.array or numpy.asarray", _JOIN)

    def _refuse_values(self) -> NoReturn:
        """Raises TracingError for an array that the function refers to."""
        self._traced.refuse("get() or a conversion", _CONVERSION)

    def _refuse_copy(self) -> NoReturn:
        """Raises TracingError for a result that is to be written to an array of this process."""
        self._traced.refuse("a write to an array of this process", _COPY)

    def _refuse(self, conversion: str) -> NoReturn:
        """Raises TracingError for a conversion by the caller, or by a function of this package."""
        if sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
            self._traced.refuse("this call, whose sizes or steps depend on elements,", _SIZE)
        self._refuse_assignment()
        self._traced.refuse(conversion, _CONVERSION)

    def _refuse_assignment(self) -> None:
        """Raises TracingError if the caller's code assigns the array to elements of another, which NumPy has made."""
        frame = frame_of_caller()
        if frame.f_code.co_code[frame.f_lasti] in _ASSIGNMENTS:
            self._traced.refuse("an assignment to elements of an array of this process", _ASSIGNMENT)

    def __bool__(self) -> bool:
        if self.size == 1:
            self._traced.refuse("a condition of if, while, and, or, not, in")
        return super().__bool__()  # which raises NumPy's error

    def _assign(self, result: Any) -> None:
        trace = self._trace
        if self._argument:
            name = self._argument if self._argument.isidentifier() else "a"
            raise TracingError(
                f"{trace.name} changes its argument {self._argument.removeprefix('argument ')}, which its caller would "
                f"not see; begin with a copy, {name} = {name}.copy(), and return it"
            )
        if trace.has_open_body:
            raise TracingError(
                f"a function in {trace.name}, such as the body of a loop, changes an array from outside of it, which "
                "only what it returns can change; begin with a copy(), and return or carry it"
            )
        super()._assign(result)

    def __iter__(self) -> Iterator[Any]:
        if len(self) > MAX_ROWS:
            raise TracingError(
                f"a loop over the {len(self)} rows of an array would make each a part of the program of "
                f"{self._traced.trace.name}; loop over at most {MAX_ROWS}, or compute with complete arrays"
            )
        return super().__iter__()

    def __repr__(self) -> str:
        return f"<RemoteArray {self.type}, traced>"

    __str__ = __repr__
