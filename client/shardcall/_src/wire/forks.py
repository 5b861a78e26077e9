"""What a forked child makes anew of a client: it has none of its threads, and locks may be held by those for ever."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class BeginsAnew(Protocol):
    """What a child cannot use as it was at the fork."""

    def begin_anew(self) -> None:
        """Goes on, in the child, as the only thread."""


class _Children:
    """What begins anew in every process that this one forks."""

    def __init__(self) -> None:
        self.known: weakref.WeakSet[BeginsAnew] = weakref.WeakSet()

    def begin_anew(self) -> None:
        for one in list(self.known):
            one.begin_anew()


_children = _Children()  # a module's, since what is told of forks cannot be told to forget
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_children.begin_anew)


def begin_anew_in_children(one: BeginsAnew) -> None:
    """Has it begin anew in every child that is forked while it is there."""
    _children.known.add(one)
