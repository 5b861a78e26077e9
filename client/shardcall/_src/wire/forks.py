"""Prepares objects for forks: children lack the parent's threads and may inherit held locks."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class BeginsAnew(Protocol):
    """An object that a forked child must reset."""

    def begin_anew(self) -> None:
        """Resets the object in the child, which has one thread."""


class Pauses(Protocol):
    """An object whose threads must not be at work in another library when this process forks."""

    def pause(self) -> None:
        """Waits until the threads are idle."""

    def resume(self) -> None:
        """Resumes the threads, in the parent."""


class _Children:
    """The objects that forked children reset."""

    def __init__(self) -> None:
        self.objects: weakref.WeakSet[BeginsAnew] = weakref.WeakSet()
        self.pausing: weakref.WeakSet[Pauses] = weakref.WeakSet()

    def begin_anew(self) -> None:
        for one in list(self.objects):
            one.begin_anew()

    def pause(self) -> None:
        for one in list(self.pausing):
            one.pause()

    def resume(self) -> None:
        for one in list(self.pausing):
            one.resume()


_children = _Children()  # global, since fork handlers cannot be unregistered
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_children.pause, after_in_parent=_children.resume, after_in_child=_children.begin_anew)


def begin_anew_in_children(one: BeginsAnew) -> None:
    """Resets an object in every child that is forked during its lifetime."""
    _children.objects.add(one)


def pause_at_forks(one: Pauses) -> None:
    """Pauses an object during every fork in its lifetime."""
    _children.pausing.add(one)
