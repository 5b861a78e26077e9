"""The order of clients and connections at the compiler."""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import Generic, TypeVar

from shardcall_server.frontend.rpc.fair_queue import FairQueue, Waiter

MAX_COMPILED = 4
"""The maximum number of programs that the mesh compiles for all clients together, as many as it has threads."""

MAX_PER_OWNER = 3
"""The maximum number of programs that the mesh compiles for one client; it has a thread more."""

MAX_PER_CONNECTION = 2
"""The maximum number of programs that the mesh compiles for one connection."""

C = TypeVar("C", bound=Waiter)


class CompilationQueue(Generic[C]):
    """Compilations that wait until all clients, their client and their connection have fewer under way.

    Those that wait begin in the order of a fair queue, except that clients and connections with their maximum under way
    are passed over. The server's own, whose owner is empty, neither wait nor count. The thread of a call of any method
    holds the launch lock.
    """

    def __init__(self) -> None:
        self._waiting: FairQueue[C] = FairQueue()
        self._begun: set[C] = set()
        self._owners: Counter[str] = Counter()
        self._connections: Counter[tuple[str, str]] = Counter()

    def add(self, compilation: C) -> bool:
        """Returns True if a compilation may begin now; otherwise `finish` returns it later."""
        if not self._is_admitted(compilation):
            self._waiting.add(compilation)
            return False
        self._begin(compilation)
        return True

    def move(self, compilation: C, owner: str, connection: str, weight: int) -> bool:
        """Makes a compilation that waits wait for another caller too, as whose it is counted if it begins earlier so.

        Returns:
            True if it may begin now.
        """
        if not self.position(compilation):
            return False
        moved = copy(compilation)
        moved.owner, moved.connection, moved.weight = owner, connection, weight
        if not self._is_admitted(moved) and self._rank(compilation) <= self._rank_if_added(moved):
            return False
        self._waiting.remove(compilation)
        compilation.owner, compilation.connection, compilation.weight = owner, connection, weight
        return self.add(compilation)

    def remove(self, compilation: C) -> bool:
        """Removes a compilation that waits; returns False if it does not."""
        return self._waiting.remove(compilation)

    def position(self, compilation: C) -> int:
        """Returns the position of a compilation among those that wait, 1 for the next; 0 if it has begun."""
        return self._waiting.position(compilation)

    def finish(self, compilation: C) -> C | None:
        """Ends a compilation that had begun, unless it has ended before; returns one that begins now."""
        self.withdraw(compilation)
        following = self._waiting.peek(self._is_admitted)
        if following is not None:
            self._waiting.take(following)
            self._begin(following)
        return following

    def withdraw(self, compilation: C) -> None:
        """Ends a compilation that could not begin after all; those that wait do so for others."""
        if compilation in self._begun:
            self._begun.remove(compilation)
            self._count(compilation, -1)

    def _begin(self, compilation: C) -> None:
        self._begun.add(compilation)
        self._count(compilation, 1)

    def _is_admitted(self, compilation: C) -> bool:
        return not compilation.owner or (self._owners.total() < MAX_COMPILED and not self._is_at_limit(compilation))

    def _is_at_limit(self, compilation: C) -> bool:
        """Returns True if the client or the connection has its maximum under way."""
        owner, connection = compilation.owner, compilation.connection
        return self._owners[owner] >= MAX_PER_OWNER or self._connections[owner, connection] >= MAX_PER_CONNECTION

    def _rank(self, compilation: C) -> tuple[bool, int]:
        """Returns a value that is less for a compilation that begins earlier; those at their limit are passed over."""
        return self._is_at_limit(compilation), self.position(compilation)

    def _rank_if_added(self, compilation: C) -> tuple[bool, int]:
        self._waiting.add(compilation)
        try:
            return self._rank(compilation)
        finally:
            self._waiting.remove(compilation)

    def _count(self, compilation: C, change: int) -> None:
        if compilation.owner:
            self._owners[compilation.owner] += change
            self._connections[compilation.owner, compilation.connection] += change
            self._owners, self._connections = +self._owners, +self._connections  # without zeros
