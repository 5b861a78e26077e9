"""Resets objects in forked children, which lack the parent's threads and may inherit held locks."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class BeginsAnew(Protocol):
    """An object that a forked child must reset."""

    def begin_anew(self) -> None:
        """Resets the object in the child, which has one thread."""


class _Children:
    """The objects that forked children reset."""

    def __init__(self) -> None:
        self.objects: weakref.WeakSet[BeginsAnew] = weakref.WeakSet()

    def begin_anew(self) -> None:
        for one in list(self.objects):
            one.begin_anew()


_children = _Children()  # global, since fork handlers cannot be unregistered
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_children.begin_anew)


def begin_anew_in_children(one: BeginsAnew) -> None:
    """Resets an object in every child that is forked during its lifetime."""
    _children.objects.add(one)
