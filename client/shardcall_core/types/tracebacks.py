"""Tracebacks of errors without the frames of this package."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

from shardcall_core.types.errors import ShardcallError

VARIABLE = "SHARDCALL_TRACEBACKS"
"""The environment variable that keeps all frames if its value is ``full``."""

_PACKAGES = frozenset({"shardcall", "shardcall_core"})
_HIDDEN = _PACKAGES | frozenset({"google", "grpc", "ml_dtypes", "numpy"}) | sys.stdlib_module_names
# Errors that no caller causes: whoever reports one needs all frames.
_FAULTS = (AssertionError, AttributeError, KeyError, NameError, RecursionError)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)


def shorten(error: Exception, skipped: int = 0) -> None:
    """Removes from an error's traceback the frames that a public function called; for an ``except`` that raises again.

        except Exception as error:
            shorten(error)
            raise

    ``raise`` alone adds no entry for its own frame. So what is left is the frame of the function, if its caller is not
    of this package, and frames of the caller's code that the function called. Of the frames between two of the caller's
    the first is left. Errors of gRPC and of Python that led to this one are not shown; ``__context__`` is the last one.

    Args:
        error: the error that is handled.
        skipped: the number of frames of wrappers around the function.
    """
    trace = error.__traceback__
    if trace is None or isinstance(error, _FAULTS) or os.environ.get(VARIABLE) == "full":
        return
    entries = list(_entries(trace))
    shown = _shown(entries[min(skipped, len(entries) - 1) :])
    if _is_ours(entries[0].tb_frame.f_back):
        del shown[0]  # the frame of its caller is shown instead
    error.__traceback__ = _chained(shown)
    if _is_hidden(entries[-1]):
        _hide_causes(error)


def shortened(function: _Function) -> _Function:
    """Returns a function whose errors have a short traceback; for functions that are not called often."""

    @functools.wraps(function)
    def run(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except Exception as error:
            shorten(error, skipped=1)
            raise

    return run  # type: ignore[return-value]


def shorten_methods(kind: _Class) -> _Class:
    """Makes the errors of all public methods of a class have a short traceback; returns the class."""
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(kind, name, shortened(method))
    return kind


def level_of_caller() -> int:
    """Returns the ``stacklevel`` of a warning for the line outside this package that the present call comes from."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    return level


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
