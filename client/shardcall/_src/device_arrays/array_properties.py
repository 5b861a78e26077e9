"""The properties of arrays on the mesh."""

from __future__ import annotations

import math
from typing import Protocol

from shardcall._src.device_arrays.array_version import ArrayBase, ArrayVersion
from shardcall._src.display.drawing import Drawing
from shardcall_core.element_types import DType
from shardcall_core.placements.placement import ArrayPlacement, MeshPlacement
from shardcall_core.types.arrays import Array
from shardcall_core.types.blocks import BlockGrid, block_grid
from shardcall_core.types.mesh import Mesh
from shardcall_core.types.specs import PartitionSpec
from shardcall_core.types.tracebacks import shortened


class PlacedArray(Protocol):
    """An array on the mesh, a `RemoteArray`."""

    _store: ArrayBase

    @property
    def _version(self) -> ArrayVersion:
        """The present values."""

    def _settled(self) -> MeshPlacement:
        """Returns the placement, after the call that makes the array."""


@shortened
class ArrayProperties:
    """The properties of an array on the mesh that need no round trip.

    Those that depend on the mesh wait for the answer to the call of an array that `Client.submit` returned.
    """

    # Not abstract: calls look up the classes of operands, which takes several times as long for abstract ones.
    def __remote_array__(self) -> PlacedArray:
        """Returns the array."""
        raise NotImplementedError

    def _described(self) -> PlacedArray:
        """Returns the array that has the properties."""
        return self.__remote_array__()

    @property
    @shortened
    def handle(self) -> str:
        """The hexadecimal id of the array on the server, by which other clients may use it.

        It is valid as long as this object: the client deletes the array of an object that was dropped.
        """
        version = self._described()._version
        if version.pending is not None:
            version.pending.begin()
        return version.handle.hex()

    @property
    def name(self) -> str | None:
        """The name by which other clients open it; None if it has none, which other libraries expect then."""
        return self._described()._store.name or None

    @property
    def type(self) -> Array:
        """The shape and element type."""
        return self._described()._version.type

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.type.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """The number of bytes of its values."""
        return self.type.nbytes

    @property
    def itemsize(self) -> int:
        """The number of bytes of one element."""
        return self.dtype.itemsize

    @property
    def mesh(self) -> Mesh:
        """The mesh that it is placed on, with its device ids."""
        return self._described()._settled().mesh

    @property
    def spec(self) -> PartitionSpec:
        """The sharding over the mesh."""
        return self._described()._settled().placement.spec

    @property
    def placement(self) -> ArrayPlacement:
        """The type, spec, padded shape and block shape, as in a plan."""
        return self._described()._settled().placement

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape on the devices: each sharded axis rounded up to a multiple of its devices."""
        return self._described()._settled().placement.padded_shape

    @property
    def device_bytes(self) -> int:
        """The number of bytes on all devices, each copy counted."""
        return self._described()._settled().device_bytes

    @property
    def committed(self) -> bool:
        """True if it was put, created with a mesh or a spec, or computed from such an array, as in JAX.

        An array that is not committed moves to the devices of one that is, if a call takes both.
        """
        return self._described()._version.committed

    @property
    def lost(self) -> bool:
        """True if this client has deleted it or was closed; the server may lose it otherwise."""
        return bool(self._described()._version.lost)

    def visualize(self) -> Drawing:
        """Draws its blocks with the devices that hold them, without a round trip.

        Returns:
            A drawing: ``print(array.visualize())`` shows text, the cell of a notebook a picture.
        """
        return Drawing(f"{self.type} {self.spec} on {self.mesh.short}", self.blocks())

    def blocks(self) -> BlockGrid:
        """Returns the blocks of the array with the devices that hold them."""
        return block_grid(self.shape, self.spec, self.mesh)
