"""Large arrays of this process that programs refer to, which stay on the mesh."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import Protocol

from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.programs.pending_calls import PendingCalls
from shardcall_core.types.arrays import NDArray
from shardcall_core.wire.forks import begin_anew_in_children

_MAX = 64


class PuttingClient(Protocol):
    """A client that puts arrays on the mesh."""

    def _put_array(self, array: NDArray, mesh: None, spec: None) -> RemoteArray:
        """Puts an array of this process on the mesh."""


class LargeConstants:
    """The arrays on the mesh, by their contents; safe to use from several threads at once.

    Args:
        pending: the calls of the client; after one has lost an array, all are put anew.
    """

    def __init__(self, pending: PendingCalls) -> None:
        self._pending = pending
        self.begin_anew()
        begin_anew_in_children(self)

    def begin_anew(self) -> None:
        """Forgets the arrays in a forked child."""
        self._lock = threading.Lock()  # guards the next two
        self._arrays: dict[Hashable, RemoteArray] = {}
        self._losses = self._pending.losses

    def find_or_put(self, client: PuttingClient, key: Hashable, array: NDArray) -> RemoteArray:
        """Returns an array on the mesh with the values of one of this process.

        Args:
            client: the client.
            key: equal for arrays of equal contents.
            array: the values.

        Raises:
            ShardcallError: if it cannot be put.
        """
        with self._lock:
            if self._losses != self._pending.losses:
                self._arrays, self._losses = {}, self._pending.losses
            resident = self._arrays.pop(key, None)
        if resident is None or resident.lost:
            resident = client._put_array(array, None, None)
        with self._lock:
            self._arrays[key] = resident  # the last one used is the last one removed
            while len(self._arrays) > _MAX:
                del self._arrays[next(iter(self._arrays))]
        return resident
