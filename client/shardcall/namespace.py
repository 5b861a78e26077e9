"""Functions of arrays with the names and arguments of NumPy, whose results stay on the mesh."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.remote_array import RemoteArray
from shardcall._src.functions.indexing import basic_index, is_basic
from shardcall._src.functions.permutations import moved_axes, swapped_axes
from shardcall._src.functions.table import FUNCTIONS
from shardcall._src.types import arrays
from shardcall._src.types.arrays import Array
from shardcall.methods import KernelMethods


class Submits(Protocol):
    """A client."""

    def submit(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Any:
        """Runs any kernel of the server without waiting for it."""


_STANDARD = {
    **{name: name.replace("a", "arc", 1) for name in ("acos", "asin", "atan", "acosh", "asinh", "atanh")},
    "atan2": "arctan2",
    "bitwise_invert": "invert",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
    "conj": "conjugate",
    "concat": "concatenate",
    "permute_dims": "transpose",
    "pow": "power",
}
"""The names of the Python array API standard, where they are not NumPy's names."""


class Namespace(KernelMethods[Any]):
    """Functions of arrays with the names and arguments of NumPy and of the Python array API standard.

    Their results stay on the mesh, as those of `Client.submit`, and no function waits for its result. A function takes
    arrays on the mesh, arrays of this process and numbers; it runs where its first operand on the mesh is.
    """

    pi, e, inf, nan, newaxis = math.pi, math.e, math.inf, math.nan, None

    def __init__(self, client: Submits) -> None:
        self._client = client

    @property
    def function_names(self) -> frozenset[str]:
        """The names of the functions."""
        return _NAMES

    def call(self, name: str, /, *operands: OperandLike | None, **arguments: Any) -> Any:
        """Submits a call of any kernel, as `Client.submit`."""
        return self._client.submit(name, *operands, **arguments)

    def getitem(self, x: RemoteArray, key: Any) -> Any:
        """Returns the elements of an array at an index, as ``x[key]``.

        Args:
            x: the array.
            key: integers, slices, ``...`` and None; or one array of integers, beside full slices.

        Raises:
            IndexError: for other indices, and for integers out of range.
        """
        if not is_basic(key):
            return self._at_indices(x, key)
        index = basic_index(x.shape, key)
        if index.sizes == x.shape and not (index.dropped or index.inserted or any(step != 1 for step in index.steps)):
            return x
        starts = np.asarray(index.starts, np.int64)
        parameters = {"sizes": index.sizes, "steps": index.steps, "dropped": index.dropped, "inserted": index.inserted}
        return self.call("getitem", x, starts, **parameters)

    def _at_indices(self, x: RemoteArray, key: Any) -> Any:
        """Returns the elements at an index with one array of integers."""
        items = key if isinstance(key, tuple) else (key,)
        arrays_at = [i for i, item in enumerate(items) if not is_basic(item)]
        full = all(
            isinstance(item, slice) and item == slice(None) for i, item in enumerate(items) if i not in arrays_at
        )
        indices = items[arrays_at[0]]
        if len(arrays_at) > 1 or not full or _type(indices).dtype.kind not in "iu":
            raise IndexError(
                "an array on the mesh takes integers, slices, ... and None as indices, or one array of integers beside "
                "full slices; for masks use where, or index the values, array.get()"
            )
        return self.take(x, indices, axis=arrays_at[0])

    def ravel(self, x: OperandLike) -> Any:
        """Returns the elements in one axis, as ``numpy.ravel``."""
        return self.reshape(x, -1)

    def matrix_transpose(self, x: OperandLike) -> Any:
        """Returns an array with its last two axes exchanged.

        Raises:
            ValueError: if it has fewer than two axes.
        """
        ndim = _type(x).ndim
        if ndim < 2:
            raise ValueError(f"an array of {ndim} axes has no matrices to transpose; it needs at least two")
        return self.swapaxes(x, -1, -2)

    def swapaxes(self, x: OperandLike, axis1: int, axis2: int) -> Any:
        """Returns an array with two axes exchanged, as ``numpy.swapaxes``."""
        return self.transpose(x, swapped_axes(_type(x).ndim, axis1, axis2))

    def moveaxis(self, x: OperandLike, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
        """Returns an array with axes at other positions, as ``numpy.moveaxis``."""
        return self.transpose(x, moved_axes(_type(x).ndim, source, destination))

    def angle(  # type: ignore[override]  # with NumPy's second argument
        self, z: OperandLike, deg: bool = False
    ) -> Any:
        """Returns the angle of each element, in radians or degrees, as ``numpy.angle``."""
        angle = self.call("angle", z)
        return self.degrees(angle) if deg else angle

    def round(self, x: OperandLike, decimals: int = 0) -> Any:
        """Returns an array rounded to a number of decimals, as ``numpy.round``; of integers 0 or more.

        Raises:
            ValueError: for integers and a negative number of decimals.
        """
        if _type(x).dtype.kind in "iu":
            if decimals < 0:
                raise ValueError(f"decimals={decimals} and x is of integers; give 0 or more, or floats")
            return self.copy(x)
        if decimals == 0:
            return self.rint(x)
        scale = 10.0 ** abs(decimals)
        if decimals > 0:
            return self.divide(self.rint(self.multiply(x, scale)), scale)
        return self.multiply(self.rint(self.divide(x, scale)), scale)

    def dot(self, a: OperandLike, b: OperandLike) -> Any:
        """Returns the product of two arrays, as ``numpy.dot``; ``b`` has at most two axes.

        Raises:
            ValueError: if it has more.
        """
        if not (_type(a).ndim and _type(b).ndim):
            return self.multiply(a, b)
        if _type(b).ndim > 2:
            raise ValueError(f"b has {_type(b).ndim} axes, and dot takes two at most; use matmul, or einsum")
        return self.matmul(a, b)

    def ptp(self, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Returns the maximum less the minimum over axes, as ``numpy.ptp``."""
        return self.subtract(self.max(x, axis, keepdims=keepdims), self.min(x, axis, keepdims=keepdims))

    def count_nonzero(self, x: OperandLike, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Returns the number of elements over axes that are not zero, as ``numpy.count_nonzero``."""
        return self.sum(self.not_equal(x, 0), axis, keepdims=keepdims)

    def isclose(
        self, a: OperandLike, b: OperandLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Any:
        """Returns where two arrays are equal within tolerances, as ``numpy.isclose``."""
        on_b: Any = self if isinstance(b, RemoteArray) else np  # values of this process have no place on the mesh
        bound = on_b.add(on_b.multiply(on_b.absolute(b), rtol), atol)
        near = self.less_equal(self.absolute(self.subtract(a, b)), bound)
        close = self.logical_or(self.logical_and(near, on_b.isfinite(b)), self.equal(a, b))
        if not equal_nan:
            return close
        on_a: Any = self if isinstance(a, RemoteArray) else np
        return self.logical_or(close, self.logical_and(on_a.isnan(a), on_b.isnan(b)))

    def allclose(
        self, a: OperandLike, b: OperandLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Returns whether two arrays are equal within tolerances; waits for the result."""
        return bool(self.all(self.isclose(a, b, rtol, atol, equal_nan)))

    def array_equal(self, a1: OperandLike, a2: OperandLike, equal_nan: bool = False) -> bool:
        """Returns whether two arrays have one shape and the same elements; waits for the result."""
        if _type(a1).shape != _type(a2).shape:
            return False
        same = self.isclose(a1, a2, 0.0, 0.0, equal_nan=True) if equal_nan else self.equal(a1, a2)
        return bool(self.all(same))

    def shape(self, a: OperandLike) -> tuple[int, ...]:
        """Returns the size of each axis."""
        return _type(a).shape

    def ndim(self, a: OperandLike) -> int:
        """Returns the number of axes."""
        return _type(a).ndim

    def size(self, a: OperandLike, axis: int | None = None) -> int:
        """Returns the number of elements, or the size of an axis."""
        return math.prod(_type(a).shape) if axis is None else _type(a).shape[axis]

    def iscomplexobj(self, x: OperandLike) -> bool:
        """Returns whether the element type is complex."""
        return _type(x).dtype.kind == "c"

    def isrealobj(self, x: OperandLike) -> bool:
        """Returns whether the element type is not complex."""
        return not self.iscomplexobj(x)

    def result_type(self, *arrays_and_dtypes: Any) -> Any:
        """Returns the element type of the arrays together, as ``numpy.result_type``."""
        return np.result_type(*(item.dtype if isinstance(item, RemoteArray) else item for item in arrays_and_dtypes))


def _type(a: OperandLike) -> Array:
    return a.type if isinstance(a, RemoteArray) else arrays.type_of(np.asarray(a))


def _functions() -> Iterable[str]:
    own = (name for name, value in vars(Namespace).items() if callable(value) and not name.startswith("_"))
    yield from own
    for name in FUNCTIONS:
        if hasattr(Namespace, name):
            yield name


for _name, _numpy in _STANDARD.items():
    setattr(Namespace, _name, getattr(Namespace, _numpy))
_NAMES = frozenset(_functions()) - {"call"}
