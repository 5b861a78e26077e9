"""Arrays that stay on the devices between calls."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import jax
import numpy as np

from shardcall_server.compilation.program import Placement
from shardcall_server.errors import CallError, Reason
from shardcall_server.kernels.layout import ArrayType
from shardcall_server.mesh.placement import ParallelCopier, gather, place
from shardcall_server.mesh.processes import sum_of_processes


@dataclass(frozen=True)
class Resident:
    """An array that stays.

    Attributes:
        type: what its owner sees.
        array: on the devices, padded; its memory is the devices' own.
    """

    type: ArrayType
    array: jax.Array


class ResidentArrays:
    """The arrays that stay, by the ids that commands use.

    An array is there for every command that was sent after the one that made it had been answered, and for
    executions that were sent after the one that makes it.

    Args:
        copier: copies.
    """

    def __init__(self, copier: ParallelCopier) -> None:
        self._copier = copier
        self._arrays: dict[int, Resident] = {}
        self._lock = threading.Lock()

    def keep(self, array_id: int, kind: ArrayType, array: jax.Array) -> None:
        """Keeps an array."""
        with self._lock:
            self._arrays[array_id] = Resident(kind, array)

    def find(self, array_id: int) -> Resident:
        """An array.

        Raises:
            CallError: it is not there.
        """
        with self._lock:
            found = self._arrays.get(array_id)
        if found is None:
            raise CallError(Reason.ARRAY_LOST, "the array is no longer on the mesh; put it anew", field="handle")
        return found

    def delete(self, array_ids: Iterable[int]) -> None:
        """Forgets arrays; executions that were launched before still read them."""
        with self._lock:
            for array_id in array_ids:
                self._arrays.pop(array_id, None)

    def as_operand(self, array_id: int, placement: Placement) -> jax.Array:
        """An array as a program wants it: as it lies, or moved between devices where it lies otherwise."""
        resident = self.find(array_id)
        array = resident.array
        if array.shape == placement.padded and (
            jax.process_count() == 1 or array.sharding.device_set == placement.sharding.device_set
        ):
            if array.sharding.is_equivalent_to(placement.sharding, array.ndim):
                return array
            moved: jax.Array = jax.device_put(array, placement.sharding)
            return moved
        # Padded otherwise: what is padding here may be part of a block there, so it goes by way of the host.
        return place(self._whole(resident), placement, self._copier, may_alias=True)

    def _whole(self, resident: Resident) -> np.ndarray:
        """The array in this process's memory; every process of the mesh asks for it at the same command."""
        kind = resident.type
        if jax.process_count() == 1:
            whole = np.empty(kind.shape, kind.dtype)
            gather(resident.array, whole, self._copier, lambda _: None)
            return whole
        own = np.zeros(kind.shape, kind.dtype)
        gather(resident.array, own, self._copier, lambda _: None)
        return sum_of_processes(own.reshape(-1).view(np.uint8)).view(kind.dtype).reshape(kind.shape)
