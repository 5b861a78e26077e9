"""The messages of calls that were made before."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from shardcall._src.types.mesh import Mesh
from shardcall._src.types.specs import PartitionSpec
from shardcall._src.wire.forks import begin_anew_in_children
from shardcall.v1 import kernel_pb2

_MOST = 256

# Of these, equal values of one type are one value: 0.0 and -0.0 are not, and a list may change.
_PLAIN = frozenset({bool, int, str, type(None)})


class CallMemo:
    """Remembers the messages of a client's last calls; safe to use from several threads at once.

    To make a message is much of the work of a small call. Those that are remembered are shared, and must be left
    as they are.
    """

    def __init__(self) -> None:
        self._messages: dict[Hashable, kernel_pb2.KernelCall] = {}
        self._lock = threading.Lock()
        begin_anew_in_children(self)

    def __len__(self) -> int:
        return len(self._messages)

    def begin_anew(self) -> None:
        """Goes on in a forked child."""
        self._lock = threading.Lock()

    def find(self, key: Hashable | None) -> kernel_pb2.KernelCall | None:
        """Returns the message of a call with the key; None where there is none."""
        return None if key is None else self._messages.get(key)

    def keep(self, key: Hashable | None, message: kernel_pb2.KernelCall) -> None:
        """Remembers a message, and forgets the oldest where there are too many; None as the key keeps nothing."""
        if key is None:
            return
        with self._lock:
            self._messages[key] = message
            while len(self._messages) > _MOST:
                del self._messages[next(iter(self._messages))]


def call_key(
    kernel: str,
    parameters: Mapping[str, Any],
    mesh: Mesh | None,
    in_specs: Sequence[PartitionSpec | None] | None,
    out_specs: Sequence[PartitionSpec | None] | None,
    strategy: str,
) -> Hashable | None:
    """Returns what calls have in common that have the same message.

    Returns:
        The key; None where a parameter is not of the plain kinds whose equality says enough.
    """
    kinds = tuple(map(type, parameters.values()))  # for 1 == True
    if not _PLAIN.issuperset(kinds):
        return None
    over = mesh and (mesh.axes, mesh.device_ids)
    return kernel, strategy, over, tuple(in_specs or ()), tuple(out_specs or ()), kinds, *parameters.items()
