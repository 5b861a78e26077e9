"""Resident arrays: arrays that stay on the devices between calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import jax
import numpy as np

from shardcall_core.call_error import CallError, Reason
from shardcall_core.layouts.layout import ArrayType
from shardcall_server.compilation.program import SMALL_BYTES, Placement
from shardcall_server.mesh.placement import ParallelCopier, gather, put_padded
from shardcall_server.mesh.processes import first_failure, sum_of_processes


@dataclass(frozen=True)
class DeviceArray:
    """A resident array in device memory.

    Attributes:
        type: the unpadded shape and the element type.
        array: the padded array, which aliases no host memory.
    """

    type: ArrayType
    array: jax.Array


@dataclass(frozen=True)
class DeclaredArray:
    """A resident array that is read from a file when it is first used.

    Attributes:
        type: the unpadded shape and the element type.
        read: returns the padded array, in device memory.
    """

    type: ArrayType
    read: Callable[[], jax.Array]


class ResidentArrays:
    """The resident arrays, by the ids that commands use.

    An array is available to commands that were sent after the one that creates it was answered, and to executions
    that were sent after an execution that creates it. Threads share them without a lock: every use is one operation
    of a dictionary.

    Args:
        on_read: called with True before the file of an array is read, and with False afterwards.
    """

    def __init__(self, copier: ParallelCopier, on_read: Callable[[bool], None] = lambda _: None) -> None:
        self._copier = copier
        self._on_read = on_read
        self._arrays: dict[int, DeviceArray | DeclaredArray] = {}
        self._is_one_process = jax.process_count() == 1

    def keep(self, array_id: int, array_type: ArrayType, array: jax.Array) -> None:
        """Adds an array."""
        self._arrays[array_id] = DeviceArray(array_type, array)

    def declare(self, array_id: int, array_type: ArrayType, read: Callable[[], jax.Array]) -> None:
        """Adds an array that is read when a command first uses it."""
        self._arrays[array_id] = DeclaredArray(array_type, read)

    def get(self, array_id: int) -> DeviceArray:
        """Returns an array.

        Raises:
            CallError: ARRAY_LOST; FILE_DAMAGED for a declared array that cannot be read.
        """
        resident = self._arrays.get(array_id)
        if resident is None:
            raise CallError(Reason.ARRAY_LOST, "the array is no longer on the mesh; put it again", field="handle")
        if isinstance(resident, DeclaredArray):
            return self._read(array_id, resident)
        return resident

    def _read(self, array_id: int, declared: DeclaredArray) -> DeviceArray:
        self._on_read(True)
        try:
            resident = DeviceArray(declared.type, self._read_by_all(declared))
        finally:
            self._on_read(False)
        if self._arrays.get(array_id) is declared:  # else it was deleted meanwhile
            self._arrays[array_id] = resident
        return resident

    def _read_by_all(self, declared: DeclaredArray) -> jax.Array:
        """Reads the file of an array; if one process of the mesh cannot, none has the array.

        Otherwise one would refuse the command, and the others would wait for it in the program.
        """
        if self._is_one_process:
            return declared.read()
        array, error = None, None
        try:
            array = declared.read()
        except Exception as raised:  # noqa: BLE001  # the others wait for this process in any case
            error = raised
        if (failure := first_failure(error)) is not None:
            raise failure from error
        assert array is not None
        return array

    def delete(self, array_ids: Iterable[int]) -> bool:
        """Removes arrays, which executions that were launched before still read; returns True if any is large."""
        is_large = False
        for array_id in array_ids:
            resident = self._arrays.pop(array_id, None)
            is_large = is_large or (resident is not None and resident.type.nbytes > SMALL_BYTES)
        return is_large

    def as_operand(self, array_id: int, placement: Placement) -> jax.Array:
        """Returns an array in the placement that a program takes; transfers it between devices if necessary."""
        return self.placed(self.get(array_id), placement)

    def placed(self, resident: DeviceArray, placement: Placement) -> jax.Array:
        """Returns an array in another placement; see `as_operand`."""
        array = resident.array
        sharding, target = array.sharding, placement.sharding
        if array.shape == placement.padded and (self._is_one_process or sharding.device_set == target.device_set):
            if sharding == target or sharding.is_equivalent_to(target, array.ndim):  # the first is quicker
                return array
            moved: jax.Array = jax.device_put(array, placement.sharding)
            return moved
        # With another padding, padding may become part of a block, so the transfer goes through the host.
        return put_padded(self._gather_unsharded(resident), placement, self._copier, may_alias=True)

    def _gather_unsharded(self, resident: DeviceArray) -> np.ndarray:
        """Returns the unsharded array in host memory; every process of the mesh calls this at the same command."""
        array_type = resident.type
        if self._is_one_process:
            unsharded = np.empty(array_type.shape, array_type.dtype)
            gather(resident.array, unsharded, self._copier, lambda _: None)
            return unsharded
        local = np.zeros(array_type.shape, array_type.dtype)
        gather(resident.array, local, self._copier, lambda _: None)
        return sum_of_processes(local.reshape(-1).view(np.uint8)).view(array_type.dtype).reshape(array_type.shape)
