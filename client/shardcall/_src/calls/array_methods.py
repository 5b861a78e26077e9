"""The client's methods for arrays on the mesh."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import normalize_axis_index

from shardcall._src.calls.implicit_gets import ImplicitGets, Statistics
from shardcall._src.calls.remote_arrays import Handle, RemoteArrays, checked_keep
from shardcall._src.device_arrays.bucketed_array import Bucket, BucketedArray
from shardcall._src.device_arrays.operands import OperandLike, as_operand
from shardcall._src.device_arrays.remote_array import SHORT_TIMEOUT_S, RemoteArray, find_remote_array
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S, Deadline
from shardcall._src.transfer.shared_memory_client import SharedMemory
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.errors import InvalidOperandError
from shardcall_core.types.mesh import Mesh, MeshLike
from shardcall_core.types.specs import SpecLike
from shardcall_core.types.tracebacks import shorten, shortened

_LARGE_BYTES = 1 << 20  # from which the server's default mesh has all devices
_ONE_DEVICE = Mesh(x=1)


class ArrayMethods(ABC):
    """Puts arrays on the mesh, where they stay between calls, and gets them back."""

    _remote_arrays: RemoteArrays
    _implicit_gets: ImplicitGets
    _shared_memory: SharedMemory | None

    @property
    @abstractmethod
    def xp(self) -> Any:
        """The functions of arrays with NumPy's names, whose results stay on the mesh."""

    def statistics(self) -> Statistics:
        """Returns the counts of this client since it connected."""
        return self._implicit_gets.statistics()

    @abstractmethod
    def _copied(self, array: RemoteArray, /) -> None:
        """Counts a copy that NumPy requested."""

    @abstractmethod
    def _deadline(self, timeout: float | None) -> Deadline:
        """Returns the deadline of a call that starts now."""

    @shortened
    def put(
        self,
        x: OperandLike,
        /,
        *,
        mesh: MeshLike | None = None,
        spec: SpecLike | None = None,
        keep_for: float = 0.0,
        timeout: float | None = DEFAULT_TIMEOUT_S,
    ) -> RemoteArray:
        """Puts an array on the mesh, where it stays.

        Args:
            x: [...] an array-like.
            mesh: the mesh to place it on; None for the server's default mesh.
            spec: the sharding; None shards its first axis over all mesh axes.
            keep_for: seconds for which it stays without this client, until it is deleted or the mesh restarts; other
                clients of the same principal use its handle. 0 keeps it as long as this client has the object.
            timeout: seconds, upload included; None for the server's maximum.

        Returns:
            The array on the mesh, an operand of any kernel.

        Raises:
            ResourceExhaustedError: if the server's limits do not allow it.
            ShardcallError: of the class that fits.
        """
        if isinstance(x, RemoteArray | Array):
            raise InvalidOperandError(
                f"x is {x!r}, which has no values here; give an array, or call Client.reshard(x, keep=True, …) for "
                "a copy of a RemoteArray on the mesh",
                field="x",
            )
        array, until = as_operand(x, "x"), self._deadline(timeout)
        return self._remote_arrays.put(self, array, mesh, spec, until, keep_s=checked_keep(keep_for))

    def bucket(
        self, x: OperandLike, axis: int = 0, *, mesh: MeshLike | None = None, spec: SpecLike | None = None
    ) -> BucketedArray:
        """Puts an array on the mesh with one axis rounded up, so that arrays of many lengths share compiled programs.

        The axis gets one of eight sizes for each doubling, and at most an eighth more elements than it has. The array
        has its own shape in all results; docs/arrays.md lists the functions that keep the padding.

        Args:
            x: [...] an array-like, or an array on the mesh, whose padding is then made for each length.
            axis: the axis that is rounded up.
            mesh: the mesh to place it on; None for the server's default mesh, or that of an array on the mesh.
            spec: the sharding; None shards its first axis over all mesh axes, or for that of an array on the mesh.

        Raises:
            numpy.exceptions.AxisError: if there is no such axis.
            ShardcallError: of the class that fits.
        """
        if (here := find_remote_array(x)) is not None:
            return BucketedArray.of(self.xp.array(here, mesh=mesh, spec=spec), normalize_axis_index(axis, here.ndim))
        array = as_operand(x, "x")
        bucket = Bucket(normalize_axis_index(axis, array.ndim), array.shape[axis])
        return BucketedArray(self.put(np.pad(array, bucket.widths(array.ndim)), mesh=mesh, spec=spec), bucket)

    def _put_array(self, array: NDArray, mesh: MeshLike | None, spec: SpecLike | None) -> RemoteArray:
        """Puts an array on the mesh; without a mesh and a spec it is not committed, and a small one is on one device.

        Args:
            array: [...] the array.
            mesh: the mesh to place it on.
            spec: the sharding.

        Raises:
            ShardcallError: of the class that fits.
        """
        committed = mesh is not None or spec is not None
        if not committed and array.nbytes < _LARGE_BYTES:
            mesh = _ONE_DEVICE
        until = self._deadline(DEFAULT_TIMEOUT_S)
        return self._remote_arrays.put(self, array, mesh, spec, until, committed=committed)

    def get(self, array: Handle, /, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> NDArray:
        """Copies an array from the mesh.

        Args:
            array: a `RemoteArray`, or the handle of one.
            timeout: seconds, download included; None for the server's maximum.

        Raises:
            ArrayLostError: if it is no longer there.
            ShardcallError: of the class that fits.
        """
        try:
            return self._remote_arrays.get(array, self._deadline(timeout))
        except Exception as error:
            shorten(error)
            raise

    @shortened
    def describe(self, array: Handle, /, *, timeout: float | None = SHORT_TIMEOUT_S) -> RemoteArray:
        """Returns an array as the server describes it.

        Args:
            array: a `RemoteArray`, or the handle of one, which may be another client's.
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if it is no longer there.
            ShardcallError: of the class that fits.
        """
        return self._remote_arrays.describe(self, array, self._deadline(timeout))

    @shortened
    def delete(self, /, *arrays: Handle, timeout: float | None = SHORT_TIMEOUT_S) -> int:
        """Deletes arrays from the mesh; those that are not there are ignored.

        An array that a copy shares, such as a slice of everything, stays until its last object is deleted or dropped;
        a handle deletes it for all.

        Args:
            arrays: `RemoteArray` objects, or handles.
            timeout: seconds; None for the server's maximum.

        Returns:
            The number of arrays that were there.

        Raises:
            ShardcallError: of the class that fits.
        """
        return self._remote_arrays.delete(arrays, self._deadline(timeout))

    @shortened
    def list(
        self, *, of_all_clients: bool = False, timeout: float | None = SHORT_TIMEOUT_S
    ) -> builtins.list[RemoteArray]:
        """Returns the arrays that this client has on the server, oldest first.

        Args:
            of_all_clients: also those of other clients of the same principal, and those that outlive their clients.
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.
        """
        if of_all_clients:
            return self._remote_arrays.of_principal(self, self._deadline(timeout))
        return self._remote_arrays.all(self, self._deadline(timeout))

    @shortened
    def empty(self, shape: int | Iterable[int], dtype: npt.DTypeLike = np.float64) -> NDArray:
        """Returns an uninitialized array, as ``numpy.empty``, that calls use as an operand without a copy.

        The array is in memory shared with the server if there is some, else an ordinary array. It stays valid after
        `close`. It must not be changed while a call that it is an operand of runs.

        Args:
            shape: the size of each axis; an integer for one axis.
            dtype: the element type, as for `shardcall.Array`.

        Raises:
            InvalidOperandError: for a negative size.
            OperandTypeError: for an unsupported element type.
        """
        kind = Array(shape, dtype)
        if self._shared_memory is None:
            return np.empty(kind.shape, kind.dtype)
        return self._shared_memory.empty(kind, self._deadline(SHORT_TIMEOUT_S))
