"""Who is next among calls that wait: in turns between clients, the most urgent of each first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Waiter(Protocol):
    """What stands in a line.

    Attributes:
        owner: whose it is.
        connection: what it came by.
        deadline: when it gives up, on the monotonic clock.
    """

    owner: str
    connection: str
    deadline: float


W = TypeVar("W", bound=Waiter)


@dataclass(order=True)
class _QueueEntry(Generic[W]):
    """A waiter among those of its connection: by deadline, then by when it came."""

    deadline: float
    number: int
    waiter: W = field(compare=False)


class FairQueue(Generic[W]):
    """Waiters in the order in which they are served.

    Owners take turns; the connections of one owner take turns within its turns; of one connection's waiters the one
    with the nearest deadline is served first. So an owner alone with one that has hundreds waiting is next but one.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OrderedDict[str, list[_QueueEntry[W]]]] = OrderedDict()
        self._entries: dict[int, _QueueEntry[W]] = {}
        self._counts: dict[str, int] = {}
        self._added = 0

    def __len__(self) -> int:
        return len(self._entries)

    def count(self, owner: str) -> int:
        """How many of an owner's wait."""
        return self._counts.get(owner, 0)

    def add(self, waiter: W) -> None:
        """Puts a waiter into its entry."""
        self._added += 1
        entry = self._entries[id(waiter)] = _QueueEntry(waiter.deadline, self._added, waiter)
        connections = self._owners.setdefault(waiter.owner, OrderedDict())
        insort(connections.setdefault(waiter.connection, []), entry)
        self._counts[waiter.owner] = self.count(waiter.owner) + 1

    def peek(self) -> W | None:
        """Who is next; it stays in the line. None where nobody waits."""
        for connections in self._owners.values():
            for entries in connections.values():
                return entries[0].waiter
        return None

    def pop(self) -> W:
        """Takes out who is next, and gives the next turn to others.

        Raises:
            KeyError: nobody waits.
        """
        waiter = self.peek()
        if waiter is None:
            raise KeyError("nobody waits")
        self.remove(waiter)
        if (connections := self._owners.get(waiter.owner)) is not None:
            self._owners.move_to_end(waiter.owner)
            if waiter.connection in connections:
                connections.move_to_end(waiter.connection)
        return waiter

    def remove(self, waiter: W) -> bool:
        """Takes out a waiter that does not wait any longer; returns whether it was there. Nobody's turn changes."""
        entry = self._entries.pop(id(waiter), None)
        if entry is None:
            return False
        connections = self._owners[waiter.owner]
        entries = connections[waiter.connection]
        del entries[bisect_left(entries, entry)]
        self._counts[waiter.owner] -= 1
        if not entries:
            del connections[waiter.connection]
        if not connections:
            del self._owners[waiter.owner], self._counts[waiter.owner]
        return True
