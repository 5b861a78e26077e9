"""A fair queue of waiting calls: weighted round-robin between clients, the nearest deadline of each client first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Waiter(Protocol):
    """An item of the queue.

    Attributes:
        owner: the name of its client.
        connection: the connection of its client.
        deadline: the moment on the monotonic clock at which it gives up.
        weight: the number of waiters of its client that are served in a round.
    """

    owner: str
    connection: str
    deadline: float
    weight: int


W = TypeVar("W", bound=Waiter)


@dataclass(order=True)
class _QueueEntry(Generic[W]):
    """A waiter of one connection; ordered by deadline, then by arrival."""

    deadline: float
    number: int
    waiter: W = field(compare=False)


@dataclass(frozen=True)
class _List:
    """A list of entries that is served round-robin with others.

    Attributes:
        length: the number of its entries.
        weight: the number that are served in a round.
        served: those of this round that were served already.
    """

    length: int
    weight: int = 1
    served: int = 0


class FairQueue(Generic[W]):
    """Waiters in the order in which they are served.

    Owners are served round-robin, as many waiters of each in a round as its weight, one after the other. The
    connections of one owner are served round-robin, and the waiters of one connection by nearest deadline. A client
    with one waiter is therefore served second even if another client of weight 1 has hundreds. An owner without waiters
    begins anew.
    """

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OrderedDict[str, list[_QueueEntry[W]]]] = OrderedDict()
        self._entries: dict[int, _QueueEntry[W]] = {}
        self._counts: dict[str, int] = {}
        self._served: Counter[str] = Counter()  # the waiters of an owner that were served in this round
        self._added = 0

    def __len__(self) -> int:
        return len(self._entries)

    def count(self, owner: str) -> int:
        """Returns the number of an owner's waiters."""
        return self._counts.get(owner, 0)

    def add(self, waiter: W) -> None:
        """Adds a waiter."""
        self._added += 1
        entry = self._entries[id(waiter)] = _QueueEntry(waiter.deadline, self._added, waiter)
        connections = self._owners.setdefault(waiter.owner, OrderedDict())
        insort(connections.setdefault(waiter.connection, []), entry)
        self._counts[waiter.owner] = self.count(waiter.owner) + 1

    def position(self, waiter: W) -> int:
        """Returns the position of a waiter, 1 for the next; 0 if it is not in the queue."""
        entry = self._entries.get(id(waiter))
        if entry is None:
            return 0
        connections = self._owners[waiter.owner]
        lists = {name: _List(len(entries)) for name, entries in connections.items()}
        index = _served_before(lists, waiter.connection, bisect_left(connections[waiter.connection], entry))
        lists = {owner: _List(self._counts[owner], self._weight(owner), self._served[owner]) for owner in self._owners}
        return _served_before(lists, waiter.owner, index) + 1

    def _weight(self, owner: str) -> int:
        return next(iter(self._owners[owner].values()))[0].waiter.weight

    def peek(self, is_admitted: Callable[[W], bool] = lambda _: True) -> W | None:
        """Returns the next waiter without removing it; None if there is none.

        Args:
            is_admitted: returns False for waiters to be passed over.
        """
        for connections in self._owners.values():
            for entries in connections.values():
                for entry in entries:
                    if is_admitted(entry.waiter):
                        return entry.waiter
        return None

    def pop(self) -> W:
        """Removes and returns the next waiter; other owners and connections come next.

        Raises:
            KeyError: the queue is empty.
        """
        waiter = self.peek()
        if waiter is None:
            raise KeyError("the queue is empty")
        self.take(waiter)
        return waiter

    def take(self, waiter: W) -> None:
        """Removes a waiter that is served now; other connections come next, and other owners at the end of a round."""
        self.remove(waiter)
        if (connections := self._owners.get(waiter.owner)) is not None:
            self._served[waiter.owner] += 1
            if self._served[waiter.owner] >= waiter.weight:
                del self._served[waiter.owner]
                self._owners.move_to_end(waiter.owner)
            if waiter.connection in connections:
                connections.move_to_end(waiter.connection)

    def remove(self, waiter: W) -> bool:
        """Removes a waiter; returns whether it was in the queue. The order of the others does not change."""
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
            del self._owners[waiter.owner], self._counts[waiter.owner], self._served[waiter.owner]
        return True


def _served_before(lists: Mapping[str, _List], name: str, index: int) -> int:
    """Returns the number of entries that are served before one.

    Args:
        lists: the lists by name, the next to be served first.
        name: the list of the entry.
        index: its index in that list.
    """
    before = index
    rounds = (index + lists[name].served) // lists[name].weight + 1
    for other, entries in lists.items():
        if other == name:
            rounds -= 1  # those behind it are served later in a round
        else:
            before += min(entries.length, max(0, rounds * entries.weight - entries.served))
    return before
