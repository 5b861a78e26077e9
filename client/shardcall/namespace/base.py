"""The base of the functions of `client.xp`: its client, name and equality, and calls of kernels."""

from __future__ import annotations

import copy
from types import FunctionType
from typing import Any, Protocol, SupportsIndex

import numpy as np

from shardcall._src.device_arrays.array_properties import ArrayProperties
from shardcall._src.device_arrays.array_protocols import ArrayProtocols
from shardcall._src.device_arrays.bucketed_array import BucketedArray
from shardcall._src.device_arrays.masked_elements import taking_masked
from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray, find_remote_array
from shardcall._src.device_arrays.views import ARRAYS, VIEWS, read_only_step
from shardcall.methods import KernelMethods
from shardcall.methods.kernel_caller import Options, SubmittedArray
from shardcall.namespace.bucketed_calls import call_bucketed, call_padded
from shardcall.namespace.flattened_calls import call_flattened, is_flattened
from shardcall.namespace.integers import integer
from shardcall.namespace.view_steps import view_step
from shardcall_core.element_types import DType
from shardcall_core.types import arrays
from shardcall_core.types.arrays import Array, NDArray
from shardcall_core.types.mesh import MeshLike
from shardcall_core.types.specs import SpecLike
from shardcall_core.types.tracebacks import shortened


class NamespaceClient(Protocol):
    """A client."""

    def submit(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Any:
        """Runs any kernel of the server without waiting for it."""

    def _put_array(self, array: NDArray, mesh: MeshLike | None, spec: SpecLike | None) -> RemoteArray:
        """Puts an array of this process on the mesh."""

    def _present(self, array: RemoteArray, /) -> RemoteArray:
        """Returns what an array is in the function that is traced; the array where none is."""


class NamespaceBase(KernelMethods[SubmittedArray]):
    """Submits the calls of a namespace."""

    def __init_subclass__(cls) -> None:
        for name, function in list(vars(cls).items()):
            if isinstance(function, FunctionType) and name[0] != "_" and hasattr(np, name):
                setattr(cls, name, taking_masked(name, function))
        shortened(cls)  # first, since methods of kernels are completed at their first lookup
        super().__init_subclass__()

    def __init__(self, client: NamespaceClient) -> None:
        self._client = client

    # Libraries distinguish namespaces as they do modules: by their names, and in sets.
    __name__ = "shardcall.namespace"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamespaceBase) and other._client is self._client

    def __hash__(self) -> int:
        return id(self._client)

    def __repr__(self) -> str:
        return f"<functions of arrays of {self._client!r}>"

    @shortened
    def _named(self, kernel: str, *operands: OperandLike | None, options: Options, **parameters: Any) -> SubmittedArray:
        """Submits the call of a method, without ``out=None``, which libraries pass on from functions of NumPy."""
        if options.get("out", 0) is None:
            options = {name: value for name, value in options.items() if name != "out"}  # type: ignore[assignment]
        return super()._named(kernel, *operands, options=options, **parameters)

    def call(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Any:
        """Submits a call of any kernel, as `Client.submit`."""
        if BucketedArray in map(type, operands):
            return call_bucketed(self, name, operands, arguments)
        if any(type(x) is RemoteArray and x._store.padded_axis is not None for x in operands):
            result = call_padded(self, name, operands, arguments)
            if result is not None:
                return result
        if arguments.get("axis", 0) is None and is_flattened(name, operands, arguments):
            return call_flattened(self, name, operands, arguments)
        if name in VIEWS and (x := find_remote_array(operands[0])) is not None and not x._is_scalar:
            if name == "real" and x.dtype.kind != "c" and not arguments:
                return x
            step = view_step(name, x, operands[1:], arguments)
            if step is not None and name == "squeeze" and step.type == x.type:
                return x  # as NumPy does
            if step is not None:
                return x._view(step)
            if name == "imag" and x.ndim and not arguments:  # zeros
                return self.compute(name, x)._view(read_only_step(x.type))
        result = self._client.submit(name, *operands, **arguments)
        if name in ARRAYS or (name == "astype" and _is_array(operands[0])):
            result._is_ndarray = True
        return result

    def traced(self, array: Any) -> Any:
        """Returns an array on the mesh as one of the function that is traced; None if there is none."""
        if not isinstance(array, RemoteArray):
            return None
        present = self._client._present(array)
        return copy.copy(present) if present._is_traced else None

    def selected(self, mask: Any, x: Any) -> Any:
        """Returns an array of the function that is traced with 1 where a mask is false, and anything else as it is.

        A function of it takes no refused elements, and its derivative at these, such as the infinite one of a root at
        0, is left out and not multiplied by 0.
        """
        if self.traced(x) is None:
            return x
        return self.where(mask, x, np.ones((), x.dtype))

    def compute(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Any:
        """Submits a call as `call`; the result is an array of its own where NumPy has a view."""
        return self._client.submit(name, *operands, **arguments)


def _is_array(a: OperandLike | None) -> bool:
    """Returns whether an operand on the mesh is an array of NumPy, and no scalar."""
    array = find_remote_array(a)
    return array is not None and not array._is_scalar


def namespace_of(xp: NamespaceBase, a: OperandLike) -> Any:
    """Returns the functions of an array: these for one on the mesh, else NumPy's, whose results move silently."""
    return xp if isinstance(a, ArrayProperties) else np


def converted(xp: NamespaceBase, a: OperandLike, dtype: DType) -> Any:
    """Returns an array or a number in an element type, by NumPy's unsafe conversion."""
    array = array_of(a)
    if namespace_of(xp, array) is np:
        return array.astype(dtype)
    return array if array.dtype == dtype else xp.call("astype", array, dtype=dtype.name)


def is_view(result: Any, a: OperandLike) -> bool:
    """Returns whether a result shares memory with an operand on the mesh; a number has none that it could share."""
    array = find_remote_array(a)
    return array is not None and (array._is_scalar or getattr(result, "_store", None) is array._store)


def copied(array: Any) -> Any:
    """Returns another object of an array, which is a view of none."""
    result = copy.copy(array)
    result._is_ndarray = True
    return result


def with_axis(xp: NamespaceBase, a: OperandLike, axis: SupportsIndex | None) -> Any:
    """Returns an array without axes as one of one element, for the functions that accept its axis 0."""
    if type_of(a).ndim or axis is None:
        return a
    counted_axis(axis, 1)
    return namespace_of(xp, a).reshape(a, 1)


def array_of(a: OperandLike) -> Any:
    """Returns an operand as an array, on the mesh or of this process; a Python number in the type that it has alone."""
    if isinstance(a, ArrayProperties):
        return a
    here = find_remote_array(a)
    return np.asarray(a) if here is None else here


def value_of(a: Any) -> Any:
    """Returns an argument; the values of one on the mesh, copied to this process: an implicit copy if it has axes."""
    array = find_remote_array(a)
    return a if array is None else array.to_numpy() if array.ndim else array.get()


def type_of(a: OperandLike, field: str = "operand") -> Array:
    """Returns the shape and element type of an array on the mesh, an array of this process or a number.

    Raises:
        OperandTypeError: for other elements; it names the argument ``field``.
    """
    array = array_of(a)
    return array.type if isinstance(array, ArrayProperties) else arrays.type_of(array, field)


def is_number(a: object) -> bool:
    """Returns whether an operand is a number of Python, which takes the element type of an array beside it."""
    return type(a) in (bool, int, float, complex) or hasattr(a, "python_type")


def weak_type(a: OperandLike, field: str = "operand") -> Any:
    """Returns an operand's argument of ``numpy.result_type``: its element type; for a Python number, one like it.

    Raises:
        OperandTypeError: as `type_of`.
    """
    number = getattr(a, "python_type", type(a))  # that of a traced function has the attribute
    return number(1) if number in (int, float, complex) else type_of(a, field).dtype


def counted_axis(axis: SupportsIndex, ndim: int) -> int:
    """Returns an axis counted from the first.

    Raises:
        numpy.exceptions.AxisError: if there is no such axis.
    """
    index = integer("axis", axis)
    if not -ndim <= index < ndim:
        raise np.exceptions.AxisError(index, ndim)
    return index % ndim


def check_indices(indices: OperandLike) -> None:
    """Checks that indices are integers.

    Raises:
        IndexError: if they are not.
    """
    if (dtype := type_of(indices).dtype).kind not in "iu" and not dtype.name.endswith("int4"):
        raise IndexError(f"indices is of {dtype.name}; give integers")


def part_of(a: OperandLike, key: Any) -> Any:
    """Returns the elements of an array at an index: on the mesh if the array is there, else of this process."""
    return a[key] if isinstance(a, ArrayProtocols) else np.asarray(a)[key]
