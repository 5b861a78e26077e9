"""The order of clients and connections at the compiler."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Generic, Protocol, TypeVar

from shardcall_server.frontend.rpc.fair_queue import served_before

MAX_PER_OWNER = 3
"""The maximum number of programs that the mesh compiles for one client; it has a thread more."""

MAX_PER_CONNECTION = 2
"""The maximum number of programs that the mesh compiles for one connection."""


class QueuedCompilation(Protocol):
    """A compilation.

    Attributes:
        owner: the client whose call began it; empty for the server itself, which does not wait.
        connection: the connection of the call.
    """

    owner: str
    connection: str


W = TypeVar("W", bound=QueuedCompilation)


class CompilationQueue(Generic[W]):
    """Compilations that wait until their client and their connection have fewer under way.

    The connections of a client take turns. What one client waits for delays no other client: there is no order between
    clients here, and the mesh has more threads than one client may occupy. The thread of a call of any method holds the
    launch lock.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, OrderedDict[str, deque[W]]] = {}
        self._owners: Counter[str] = Counter()
        self._connections: Counter[tuple[str, str]] = Counter()

    def add(self, compilation: W) -> bool:
        """Returns True if a compilation may begin now; otherwise `finish` returns it later."""
        if self._is_admitted(compilation.owner, compilation.connection):
            self._begin(compilation)
            return True
        connections = self._waiting.setdefault(compilation.owner, OrderedDict())
        connections.setdefault(compilation.connection, deque()).append(compilation)
        return False

    def remove(self, compilation: W) -> bool:
        """Removes a compilation that waits; returns False if it does not."""
        connections = self._waiting.get(compilation.owner)
        if connections is None or compilation not in connections.get(compilation.connection, ()):
            return False
        self._take(compilation)
        return True

    def position(self, compilation: W) -> int:
        """Returns the position of a compilation among those of its client, 1 for the next; 0 if it has begun."""
        connections = self._waiting.get(compilation.owner)
        if connections is None or compilation not in (entries := connections.get(compilation.connection, ())):
            return 0
        lengths = ((name, len(others)) for name, others in connections.items())
        return served_before(lengths, compilation.connection, list(entries).index(compilation)) + 1

    def finish(self, compilation: W) -> W | None:
        """Ends a compilation that had begun; returns one that begins now."""
        self.withdraw(compilation)
        for connection, entries in self._waiting.get(compilation.owner, {}).items():
            if self._is_admitted(compilation.owner, connection):
                following = entries[0]
                self._take(following)
                self._begin(following)
                return following
        return None

    def withdraw(self, compilation: W) -> None:
        """Ends a compilation that could not begin after all; those that wait do so for others."""
        self._owners[compilation.owner] -= 1
        self._connections[compilation.owner, compilation.connection] -= 1
        self._owners, self._connections = +self._owners, +self._connections  # without zeros

    def _is_admitted(self, owner: str, connection: str) -> bool:
        if not owner:
            return True
        return self._owners[owner] < MAX_PER_OWNER and self._connections[owner, connection] < MAX_PER_CONNECTION

    def _begin(self, compilation: W) -> None:
        self._owners[compilation.owner] += 1
        self._connections[compilation.owner, compilation.connection] += 1

    def _take(self, compilation: W) -> None:
        connections = self._waiting[compilation.owner]
        entries = connections[compilation.connection]
        entries.remove(compilation)
        connections.move_to_end(compilation.connection)
        if not entries:
            del connections[compilation.connection]
        if not connections:
            del self._waiting[compilation.owner]
