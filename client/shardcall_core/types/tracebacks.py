"""Tracebacks of errors without the frames of this package, and the line of the caller that a warning names."""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Callable
from inspect import iscoroutinefunction
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

from shardcall_core.types.errors import ShardcallError

VARIABLE = "SHARDCALL_TRACEBACKS"
"""The environment variable that keeps all frames if its value is ``full``."""

_PACKAGES = frozenset({"shardcall", "shardcall_core"})
_HIDDEN = _PACKAGES | frozenset({"google", "grpc", "ml_dtypes", "numpy"}) | sys.stdlib_module_names
# Errors that no caller causes: whoever reports one needs all frames.
_FAULTS = (AssertionError, AttributeError, KeyError, NameError, RecursionError)

# Special methods that are called often, and raise no errors of calls.
_UNCHANGED = frozenset({"__getattr__", "__setattr__", "__hash__", "__remote_array__"})

_Decorated = TypeVar("_Decorated", bound=Callable[..., Any])


def shortened(decorated: _Decorated) -> _Decorated:
    """Makes errors leave a public function, or each public or special method of a class, with a short traceback.

    The traceback then has the frame of the function, if its caller is not of this package, and frames of the caller's
    code that the function called. Of the frames between two of the caller's the first is left. Errors of gRPC and of
    Python that led to the error are not shown; ``__context__`` is the last one.
    """
    if isinstance(decorated, type):
        for name, method in list(vars(decorated).items()):
            if isinstance(method, FunctionType) and (name[0] != "_" or (name[:2] == "__" and name not in _UNCHANGED)):
                setattr(decorated, name, shortened(method))
        return decorated
    function: Callable[..., Any] = decorated
    if iscoroutinefunction(function):

        @functools.wraps(function)
        async def run_async(*args: Any, **keywords: Any) -> Any:
            try:
                return await function(*args, **keywords)
            except Exception as error:
                _shorten(error)
                raise

        return run_async  # type: ignore[return-value]

    @functools.wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except Exception as error:
            _shorten(error)
            raise  # which adds no entry for this frame

    return run  # type: ignore[return-value]


def _shorten(error: Exception) -> None:
    trace = error.__traceback__
    if trace is None or isinstance(error, _FAULTS) or os.environ.get(VARIABLE) == "full":
        return
    wrapper, *entries = _entries(trace)
    if not entries:  # the arguments do not fit the function's signature
        return
    shown = _shown(entries)
    if _is_ours(wrapper.tb_frame.f_back):
        del shown[0]  # the frame of its caller is shown instead
    error.__traceback__ = _chained(shown)
    if _is_hidden(entries[-1]):
        _hide_causes(error)


def level_of_caller() -> int:
    """Returns the ``stacklevel`` of a warning for the caller's line that the present call comes from."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _top_package(frame) in _HIDDEN:  # also contextlib, between two frames of ours
        level, frame = level + 1, frame.f_back
    return level


def calling_frame() -> FrameType:
    """Returns the innermost frame that is not of this package: of Python's code, as functions of C have none."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return frame


def is_assigning(frame: FrameType) -> bool:
    """Returns whether a frame assigns to an element, and does not call a function of C that does."""
    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "STORE_SUBSCR"


def _entries(trace: TracebackType | None) -> list[TracebackType]:
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    return entries


def _shown(entries: list[TracebackType]) -> list[TracebackType]:
    """Returns the entries of other code, and the first of each run of hidden ones."""
    hidden = [_is_hidden(entry) for entry in entries]
    return [entry for i, entry in enumerate(entries) if not hidden[i] or i == 0 or not hidden[i - 1]]


def _chained(entries: list[TracebackType]) -> TracebackType | None:
    trace = None
    for entry in reversed(entries):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trace


def _hide_causes(error: BaseException) -> None:
    cause, context = error.__cause__, error.__context__
    if isinstance(cause, ShardcallError):
        cause.__traceback__ = _chained([entry for entry in _entries(cause.__traceback__) if not _is_hidden(entry)])
    elif cause is None or _is_internal(cause):
        error.__cause__ = None  # which suppresses the context, too
        while context is not None and _is_internal(context):
            context = context.__context__
        if context is not None:  # the caller's code was handling it
            error.__context__, error.__suppress_context__ = context, False


def _is_internal(error: BaseException) -> bool:
    return all(map(_is_hidden, _entries(error.__traceback__)))


def _is_ours(frame: FrameType | None) -> bool:
    return frame is not None and _top_package(frame) in _PACKAGES


def _is_hidden(entry: TracebackType) -> bool:
    return _top_package(entry.tb_frame) in _HIDDEN


def _top_package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
