"""Prepares objects for forks: children lack the parent's threads and may inherit held locks.

A child can use the results of calls that are done. So a fork sends the calls that are recorded, and waits for all that
nobody waits for, for some time.

gRPC supports a fork only while no thread is in it, and a child of any other fork may be ended by it. So a fork waits
for the RPCs in flight, and RPCs that begin wait for the fork.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

MAX_FINISH_S = 10.0
"""The longest time for which a fork waits for calls that nobody waits for, in seconds."""

_MAX_PAUSE_S, _STEP_S = 0.3, 1e-3
_MAX_WAIT_S = 1.0  # for a fork: other fork handlers may wait for the thread that waits here


class ForkHandler(Protocol):
    """An object that a forked child must reset."""

    def begin_anew(self) -> None:
        """Resets the object in the child, which has one thread."""


class CallOwner(Protocol):
    """An object with calls that nobody waits for, and whose results a child may use."""

    @property
    def has_open_calls(self) -> bool:
        """True if a call is to be sent or awaited; takes no lock."""

    def finish_calls(self) -> None:
        """Sends the calls and waits for them, for any time."""

    def give_up_calls(self) -> None:
        """Takes the calls for no open ones any more; takes no lock."""


class RpcOwner(Protocol):
    """An object with RPCs that are in flight for longer than their calls."""

    def end_rpcs(self, timeout_s: float) -> None:
        """Makes the RPCs end after their calls; takes at most the timeout."""


class SupportsCallbacks(Protocol):
    """A call of gRPC that one of gRPC's threads serves."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Calls a function after the end of the RPC, in that thread; returns False if it has ended."""


_Object = TypeVar("_Object")


class _Alive(Generic[_Object]):
    """The objects that were added and still exist.

    No Python code runs when one is dropped, as in `weakref.WeakSet`: a Ctrl-C in it would be ignored.
    """

    def __init__(self) -> None:
        self._references: dict[int, weakref.ref[_Object]] = {}

    def add(self, one: _Object) -> None:
        """Adds an object."""
        references = self._references
        references[id(one)] = weakref.ref(one, partial(references.pop, id(one)))  # whose default is the reference

    def __iter__(self) -> Iterator[_Object]:
        return iter([one for reference in [*self._references.values()] if (one := reference()) is not None])


class _ForkHandlers:
    """The objects and RPCs that forks reset or wait for, and the threads that fork now."""

    def __init__(self) -> None:
        self.objects = _Alive[ForkHandler]()
        self.callers = _Alive[CallOwner]()
        self.ending = _Alive[RpcOwner]()
        self.rpcs: weakref.WeakSet[Rpc] = weakref.WeakSet()
        self.serving: dict[int, threading.Thread] = {}  # gRPC's
        self.forking: list[int] = []  # threads
        self.is_quiet = self.was_quiet = True

    def pause(self) -> None:
        self.finish_calls()
        self.forking.append(threading.get_ident())
        deadline = time.monotonic() + _MAX_PAUSE_S
        for one in self.ending:
            one.end_rpcs(max(deadline - time.monotonic(), 0.0))
        while self.rpcs and time.monotonic() < deadline:
            time.sleep(_STEP_S)
        for thread in list(self.serving.values()):
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))
        self.is_quiet = not self.rpcs and not any(thread.is_alive() for thread in list(self.serving.values()))

    def finish_calls(self) -> None:
        busy = {one: thread for one in self.callers if one.has_open_calls and (thread := _start(one.finish_calls))}
        deadline = time.monotonic() + MAX_FINISH_S
        for one, thread in busy.items():
            while thread.is_alive() and one.has_open_calls:
                if time.monotonic() >= deadline:
                    one.give_up_calls()  # or the next fork would wait for them again
                    break
                time.sleep(_STEP_S)

    def resume(self) -> None:
        if (ident := threading.get_ident()) in self.forking:
            self.forking.remove(ident)

    def begin_anew(self) -> None:
        self.was_quiet &= self.is_quiet
        self.rpcs.clear()
        self.serving.clear()
        self.forking.clear()
        for one in self.objects:
            one.begin_anew()


def _start(finish: Callable[[], None]) -> threading.Thread | None:
    """Returns a new thread, since the present one may hold any lock; None if there can be none."""
    thread = threading.Thread(target=finish, name="shardcall-fork", daemon=True)
    if sys.is_finalizing():  # it would never run
        return None
    with contextlib.suppress(RuntimeError):
        thread.start()
        return thread
    return None


_forks = _ForkHandlers()  # global, since fork handlers cannot be unregistered
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_forks.pause, after_in_parent=_forks.resume, after_in_child=_forks.begin_anew)


def begin_anew_in_children(one: ForkHandler) -> None:
    """Resets an object in every child that is forked during its lifetime."""
    _forks.objects.add(one)


def finish_calls_before_forks(one: CallOwner) -> None:
    """Finishes the calls of an object before every fork in its lifetime."""
    _forks.callers.add(one)


def end_rpcs_at_forks(one: RpcOwner) -> None:
    """Ends the RPCs of an object before every fork in its lifetime."""
    _forks.ending.add(one)


def forked_quietly() -> bool:
    """Returns False in a child, and in its children, if a thread may have been in gRPC at the fork."""
    return _forks.was_quiet


class Rpc:
    """An RPC, which begins while no thread forks, and for which forks wait.

    It ends with the block, or with the call that it watches.
    """

    def __init__(self) -> None:
        self._is_watching = False

    def watch(self, call: SupportsCallbacks) -> None:
        """Sets the call, unless the block's own thread serves it."""
        self._is_watching = call.add_callback(self._end)

    def _end(self) -> None:
        _forks.serving[threading.get_ident()] = threading.current_thread()
        _forks.rpcs.discard(self)

    def __enter__(self) -> Self:
        deadline = None
        _forks.rpcs.add(self)
        while _forks.forking:
            deadline = deadline or time.monotonic() + _MAX_WAIT_S
            if time.monotonic() >= deadline:
                _forks.is_quiet = False
                break
            _forks.rpcs.discard(self)
            time.sleep(_STEP_S)
            _forks.rpcs.add(self)
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_watching:
            _forks.rpcs.discard(self)
