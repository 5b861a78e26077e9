"""The base of the functions of `client.xp`."""

from __future__ import annotations

import operator
from typing import Any, Protocol, SupportsIndex

import numpy as np

from shardcall._src.device_arrays.array_protocols import ArrayProtocols
from shardcall._src.device_arrays.bucketed_array import BucketedArray
from shardcall._src.device_arrays.described import Described
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array
from shardcall._src.device_arrays.views import ARRAYS, VIEWS
from shardcall._src.types import arrays
from shardcall._src.types.arrays import Array, NDArray
from shardcall._src.types.mesh import MeshLike
from shardcall._src.types.specs import SpecLike
from shardcall._src.types.tracebacks import shorten_methods
from shardcall.methods import KernelMethods
from shardcall.methods.kernel_method import Submitted
from shardcall.namespace.bucketed_calls import call_bucketed
from shardcall.namespace.flattened_calls import call_flattened, is_flattened


class Submits(Protocol):
    """A client."""

    def submit(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Any:
        """Runs any kernel of the server without waiting for it."""

    def _put_array(self, array: NDArray, mesh: MeshLike | None, spec: SpecLike | None) -> RemoteArray:
        """Puts an array of this process on the mesh."""


class NamespaceBase(KernelMethods[Submitted]):
    """Submits the calls of a namespace."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        shorten_methods(cls)

    def __init__(self, client: Submits) -> None:
        self._client = client

    # Libraries distinguish namespaces as they do modules: by their names, and in sets.
    __name__ = "shardcall.namespace"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamespaceBase) and other._client is self._client

    def __hash__(self) -> int:
        return id(self._client)

    def __repr__(self) -> str:
        return f"<functions of arrays of {self._client!r}>"

    def call(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Any:
        """Submits a call of any kernel, as `Client.submit`."""
        if BucketedArray in map(type, operands):
            return call_bucketed(self, name, operands, arguments)
        if arguments.get("axis", 0) is None and is_flattened(name, operands, arguments):
            return call_flattened(self, name, operands, arguments)
        made = self._client.submit(name, *operands, **arguments)
        if name in VIEWS and isinstance(x := find_remote_array(operands[0]), RemoteArray) and not x._is_scalar:
            made._become_view(x)
        elif name in ARRAYS:
            made._is_ndarray = True
        return made

    def _of(self, a: OperandLike) -> Any:
        """Returns the functions of an array: these for one on the mesh, else NumPy's, whose results move silently."""
        return self if isinstance(a, Described) else np


def type_of(a: OperandLike) -> Array:
    """Returns the shape and element type of an array on the mesh, an array of this process or a number."""
    return a.type if isinstance(a, Described) else arrays.type_of(np.asarray(a))


def counted_axis(axis: SupportsIndex, ndim: int) -> int:
    """Returns an axis counted from the first.

    Raises:
        numpy.exceptions.AxisError: if there is no such axis.
    """
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise np.exceptions.AxisError(index, ndim)
    return index % ndim


def part_of(a: OperandLike, key: Any) -> Any:
    """Returns the elements of an array at an index: on the mesh if the array is there, else of this process."""
    return a[key] if isinstance(a, ArrayProtocols) else np.asarray(a)[key]
