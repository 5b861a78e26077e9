"""The elements of an array on the mesh in row-major order, as ``numpy.ndarray.flat``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from shardcall_core.types.arrays import NDArray

if TYPE_CHECKING:
    from shardcall._src.device_arrays.remote_array import RemoteArray


class FlatElements:
    """The elements of an array in row-major order; reading copies, and writing changes the array.

    Attributes:
        base: the array.
    """

    def __init__(self, base: RemoteArray) -> None:
        self.base = base

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> Iterator[Any]:
        return iter(self.base.flatten())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray:
        return self.base.flatten().__array__(dtype, copy)

    def __remote_array__(self) -> RemoteArray:
        """Returns the elements as an array of one axis."""
        return self.base.flatten()

    def copy(self) -> RemoteArray:
        """Returns the elements as an array of one axis."""
        return self.base.flatten()

    def __getitem__(self, key: Any) -> Any:
        return self.base.flatten()[key]

    def __setitem__(self, key: Any, values: Any) -> None:
        array, functions = self.base, self.base._functions
        with array._writing():
            flat = array.flatten()
            positions = np.arange(flat.size)[key]
            functions.put(flat, positions, values)
            array._assign(functions.reshape(flat, array.shape))
