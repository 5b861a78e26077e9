"""Arrays that stay on the mesh."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, Protocol, Self

import numpy as np
import numpy.typing as npt

from shardcall._src.device_arrays.placement import ArrayPlacement
from shardcall._src.display.drawing import Drawing
from shardcall._src.functions.element_types import DType
from shardcall._src.rpc.deadline import DEFAULT_TIMEOUT_S
from shardcall._src.types.arrays import Array, NDArray
from shardcall._src.types.blocks import BlockGrid, block_grid
from shardcall._src.types.errors import ArrayLostError, InvalidOperandError, ShardcallError
from shardcall._src.types.mesh import Mesh
from shardcall._src.types.sizes import human
from shardcall._src.types.specs import PartitionSpec

SHORT_TIMEOUT_S = 10.0
"""What a call without arrays may take where its caller does not say."""


@dataclass(frozen=True)
class Where:
    """The server that has an array.

    Attributes:
        address: as the array's client wrote it.
        epoch: the start of its mesh that the client found.
    """

    address: str
    epoch: int

    def is_same(self, other: Where) -> bool:
        """Whether two clients mean one server: it may have several addresses, and its mesh may restart."""
        return self.address == other.address or self.epoch == other.epoch


class Owner(Protocol):
    """The client that an array came to."""

    def get(self, array: RemoteArray, /, *, timeout: float | None) -> NDArray:
        """Copies its values from the mesh."""

    def delete(self, /, *arrays: RemoteArray, timeout: float | None) -> int:
        """Deletes it from the mesh."""


class SupportsRemoteArray(Protocol):
    """What stands for an array on the mesh."""

    def __remote_array__(self) -> RemoteArray:
        """Returns the array."""


class Described:
    """What is told of an array on the mesh without a round trip."""

    def __copy__(self) -> Self:
        return self  # its values never change, and stay as long as anybody has the object

    def __deepcopy__(self, memo: object) -> Self:
        return self

    # Not abstract: every call asks for its operands' classes, and of abstract ones that takes several times as long.
    def __remote_array__(self) -> RemoteArray:
        """Returns the array."""
        raise NotImplementedError

    @property
    def handle(self) -> str:
        """What the server calls it, hexadecimal; who has it may use the array.

        It is good for as long as this object is kept: the client deletes the array of an object that is lost.
        """
        return self.__remote_array__()._handle.hex()

    @property
    def type(self) -> Array:
        """Its shape and element type."""
        return self.__remote_array__()._placement.type

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

    @property
    def nbytes(self) -> int:
        """The bytes of its values."""
        return self.type.nbytes

    @property
    def mesh(self) -> Mesh:
        """The devices that it lies on."""
        return self.__remote_array__()._mesh

    @property
    def spec(self) -> PartitionSpec:
        """How it is split over the mesh."""
        return self.__remote_array__()._placement.spec

    @property
    def placement(self) -> ArrayPlacement:
        """Its type, spec, padded shape and the shape of its blocks, as in a plan."""
        return self.__remote_array__()._placement

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """Its shape on the devices: each split axis rounded up to a multiple of its devices."""
        return self.__remote_array__()._placement.padded_shape

    @property
    def device_bytes(self) -> int:
        """The bytes that the devices hold, copies on several of them counted."""
        return self.__remote_array__()._device_bytes

    @property
    def lost(self) -> bool:
        """Whether this client has deleted it or was closed; a server may have lost it without that."""
        return bool(self.__remote_array__()._lost)

    def visualize(self) -> Drawing:
        """Draws its blocks, each with the devices that hold it, without a round trip.

        Returns:
            The drawing: ``print(array.visualize())`` shows it as text, a notebook's cell as a picture.
        """
        return Drawing(f"{self.type} {self.spec} on {self.mesh.short}", self.blocks())

    def blocks(self) -> BlockGrid:
        """Tells which devices hold which block of it."""
        return block_grid(self.shape, self.spec, self.mesh)


class RemoteArray(Described):
    """An array that stays on the mesh between calls, an operand of any kernel.

    Made by `Client.put` and by calls with ``keep=True``. It stays until `delete`, the end of a ``with`` block over
    it, or `Client.close`; losing the object deletes nothing at once, but its client does so before the next array that
    is to stay, or with the next renewal of its lease. What is told here needs no round trip; ``numpy.asarray`` and
    `get` copy the values. A copy (`copy.copy`, `copy.deepcopy`) is the same object; a pickle is refused.
    """

    def __init__(
        self, owner: Owner, where: Where, handle: bytes, placement: ArrayPlacement, mesh: Mesh, device_bytes: int
    ) -> None:
        self._owner = owner  # which must not end, and its server with it, while an array is left
        self._where = where
        self._handle = handle
        self._placement = placement
        self._mesh = mesh
        self._device_bytes = device_bytes
        self._lost = ""
        self._entered_by = 0

    def __remote_array__(self) -> RemoteArray:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a RemoteArray belongs to its client and cannot be pickled; pickle its .handle, which a client with the "
            "same token takes while this object is kept, or its values, array.get()"
        )

    def get(self, *, timeout: float | None = DEFAULT_TIMEOUT_S) -> NDArray:
        """Copies its values from the mesh.

        Args:
            timeout: seconds; None for the server's maximum.

        Raises:
            ArrayLostError: if it is no longer there.
            ShardcallError: of the class that fits.
        """
        return self._owner.get(self, timeout=timeout)

    def delete(self, *, timeout: float | None = SHORT_TIMEOUT_S) -> None:
        """Deletes it from the mesh; may be repeated.

        Args:
            timeout: seconds; None for the server's maximum.

        Raises:
            ShardcallError: of the class that fits.
        """
        if not self._lost:
            self._owner.delete(self, timeout=timeout)

    def __enter__(self) -> Self:
        self._entered_by = os.getpid()
        return self

    def __exit__(self, kind: object, error: object, trace: object, /) -> None:
        if self._entered_by != os.getpid():  # the block of a process that forked this one, and goes on in it
            return
        with contextlib.suppress(ShardcallError):  # it goes with its lease, and the block's own error counts more
            self.delete()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        if copy is False:
            raise ValueError("the values of a RemoteArray are on the mesh and cannot be had without a copy")
        return np.asarray(self.get(), dtype=dtype)

    def __repr__(self) -> str:
        gone = f", {self._lost}" if self._lost else ""
        return f"<RemoteArray {self.type} {self.spec} on {self.mesh.short}, {human(self.device_bytes)}{gone}>"


def find_remote_array(value: object) -> RemoteArray | None:
    """Returns the array on the mesh that a value stands for; None if it stands for none."""
    # Of the class: quicker for arrays than a check of the protocol, and objects that have every attribute have none.
    method: Callable[[object], RemoteArray] | None = getattr(type(value), "__remote_array__", None)
    return None if method is None else method(value)


def mark_lost(array: RemoteArray, why: str) -> None:
    """Lets every later use of an array say why it is gone: ``deleted``, for one."""
    array._lost = why


def check_where(array: RemoteArray, here: Where, field: str) -> None:
    """Checks that an array lies on a client's server.

    Raises:
        InvalidOperandError: if it lies on another.
    """
    if not array._where.is_same(here):
        raise InvalidOperandError(
            f"{field} lies on the server at {array._where.address}, and this client talks to {here.address}; "
            "use the client that the array came from, or give a copy of it: numpy.asarray(array)",
            field=field,
        )


def check_there(array: RemoteArray, field: str) -> None:
    """Checks that an array has not been given up by this client.

    Raises:
        ArrayLostError: if it has.
    """
    if array._lost:
        raise ArrayLostError(
            f"{field} is {array.type}, {array._lost}; put it anew with Client.put, or keep it for longer", field=field
        )
