"""Caches of what is known of recent calls, and the keys of their messages."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from shardcall_core.graphs.graph import Graph
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.specs import PartitionSpec
from shardcall_core.wire.forks import begin_anew_in_children

_MAX = 4096
_MAX_BYTES = 32 << 20  # of serialized messages; one of a program has up to 1 MiB

Item = TypeVar("Item")

# Equal values of these types are interchangeable; 0.0 and -0.0 are not, and a list may change.
_PLAIN = frozenset({bool, int, str, Graph, type(None)})
_INTEGERS = frozenset({int})


class CallMemo(Generic[Item]):
    """A cache of the messages of a client's recent calls, or of their types; safe to use from several threads at once.

    Building a message is much of the work of a small call. Cached items are shared and must not be changed.

    Args:
        max_items: the number of items that it keeps.
        max_bytes: the size of the serialized messages that it keeps.
    """

    def __init__(self, max_items: int = _MAX, max_bytes: int = _MAX_BYTES) -> None:
        self._items: dict[Hashable, Item] = {}
        self._sizes: dict[Hashable, int] = {}  # of the messages
        self._nbytes = 0
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.begin_anew()
        begin_anew_in_children(self)

    def __len__(self) -> int:
        return len(self._items)

    def begin_anew(self) -> None:
        """Replaces the lock in a forked child."""
        self._lock = threading.Lock()  # guards changes of the items, which are read without it

    def find(self, key: Hashable | None) -> Item | None:
        """Returns the item of a key; None if there is none."""
        return self._items.get(key)

    def add(self, key: Hashable | None, item: Item) -> Item:
        """Stores an item, and removes the oldest of too many; does nothing for the key None.

        Returns:
            The item of the key, which may be another thread's.
        """
        if key is None:
            return item
        nbytes = item.ByteSize() if isinstance(item, Message) else 0
        with self._lock:
            item = self._items.setdefault(key, item)
            if nbytes and key not in self._sizes:
                self._sizes[key] = nbytes
                self._nbytes += nbytes
            while len(self._items) > self._max_items or self._nbytes > self._max_bytes:
                oldest = next(iter(self._items))
                del self._items[oldest]
                self._nbytes -= self._sizes.pop(oldest, 0)
        return item


def are_plain(values: Iterable[object]) -> bool:
    """Returns True if each value equals only values with the same meaning, but for their types."""
    for value in values:
        if type(value) not in _PLAIN and not (type(value) is tuple and _INTEGERS.issuperset(map(type, value))):
            return False
    return True


def call_key(
    kernel: str,
    parameters: Mapping[str, Any],
    mesh: Mesh | None,
    in_specs: Sequence[PartitionSpec | None] | None,
    out_specs: Sequence[PartitionSpec | None] | None,
    strategy: str,
    placements: Hashable = (),
) -> Hashable | None:
    """Returns the key that all calls with the same message share.

    Args:
        kernel: the name of the kernel.
        parameters: the static parameters.
        mesh: the caller's mesh.
        in_specs: the caller's specs.
        out_specs: the caller's specs.
        strategy: the name of the strategy.
        placements: what the message takes from the placements of the operands.

    Returns:
        The key; None if a parameter is of a type whose equal values may differ.
    """
    types = tuple(map(type, parameters.values()))  # for 1 == True
    if not _PLAIN.issuperset(types):
        return None
    placing = mesh and (mesh.axes, mesh.device_ids), tuple(in_specs or ()), tuple(out_specs or ()), placements
    return kernel, strategy, placing, types, *parameters.items()
