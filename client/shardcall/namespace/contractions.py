"""Products of arrays: sums over axes (dot, tensordot, einsum), all pairs (outer, kron), cross products."""

from __future__ import annotations

import operator
import string
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.methods import KernelMethods
from shardcall.namespace.base import NamespaceBase, array_of, counted_axis, type_of
from shardcall.namespace.integers import integer
from shardcall.namespace.shapes import moveaxis, ravel
from shardcall_core.functions.subscripts import from_labels
from shardcall_core.types.element_types import parse_dtype
from shardcall_core.types.errors import ParameterTypeError

Axes = SupportsIndex | Sequence[SupportsIndex]


def einsum(  # with NumPy's second form
    xp: NamespaceBase, subscripts: Any, /, *operands: Any, dtype: Any = None, **options: Any
) -> Any:
    """Returns Einstein's summation, as ``numpy.einsum``.

    Args:
        subscripts: the labels of axes, such as ``"ij,jk->ik"``; or an array, before the list of its labels.
        operands: the arrays; or lists of labels and arrays in turn, then the labels of the result.
        dtype: the element type of products and sums; None for that of the arrays together.
        options: the keywords of `Client.einsum`.

    Raises:
        ValueError: for labels that are no letters or integers from 0 to 51.
        TypeError: for arrays that ``dtype`` does not hold.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = from_labels([subscripts, *operands])
    requested = None if dtype is None else parse_dtype(dtype)
    if requested is not None and any(type_of(operand).dtype != requested for operand in operands):
        for operand in operands:
            if not np.can_cast(operand_dtype := type_of(operand).dtype, requested, "safe"):
                raise TypeError(f"an array is of {operand_dtype.name}, which dtype={requested.name} does not hold")
        options["preferred_element_type"] = requested
    return KernelMethods.einsum(xp, subscripts, *operands, **options)


def dot(xp: NamespaceBase, a: OperandLike, b: OperandLike) -> Any:
    """Returns the product of two arrays, as ``numpy.dot``: over the last axis of a and the last but one of b."""
    if not (type_of(a).ndim and type_of(b).ndim):
        return xp.multiply(array_of(a), array_of(b))
    return tensordot(xp, a, b, axes=(-1, -2)) if type_of(b).ndim > 2 else xp.matmul(a, b)


def tensordot(xp: NamespaceBase, a: OperandLike, b: OperandLike, /, axes: Any = 2) -> Any:
    """Returns the sum of products over axes of both arrays, as ``numpy.tensordot``.

    Args:
        a: the first array.
        b: the second array.
        axes: the number of axes, the last ones of a and the first ones of b; or the axes of each.

    Raises:
        ValueError: if the axes are not of the same number and sizes.
    """
    of_a, of_b = _contracted(type_of(a).shape, type_of(b).shape, axes)
    letters = iter(string.ascii_letters)
    left = [next(letters) for _ in type_of(a).shape]
    right = [next(letters) for _ in type_of(b).shape]
    for i, j in zip(of_a, of_b, strict=True):
        right[j] = left[i]
    kept = [x for i, x in enumerate(left) if i not in of_a] + [y for j, y in enumerate(right) if j not in of_b]
    return xp.einsum(f"{''.join(left)},{''.join(right)}->{''.join(kept)}", a, b)


def vecdot(xp: NamespaceBase, x1: OperandLike, x2: OperandLike, /, *, axis: int = -1) -> Any:
    """Returns the sums over an axis of the conjugate of x1 times x2, as ``numpy.vecdot``.

    Args:
        x1: [..., n] an array.
        x2: [..., n] an array that broadcasts with it along the other axes.
        axis: the axis, counted from the last of each array.
    """
    axis, sizes = integer("axis", axis), [type_of(x).shape for x in (x1, x2)]
    if any(not -len(shape) <= axis < len(shape) for shape in sizes) or sizes[0][axis] != sizes[1][axis]:
        raise ValueError(f"x1 is of shape {sizes[0]} and x2 of {sizes[1]}; give as many elements along axis {axis}")
    x1, x2 = (moveaxis(xp, x, axis, -1) for x in (x1, x2))
    if type_of(x1).dtype.kind == "c":
        x1 = xp.conjugate(x1)
    return xp.einsum("...i,...i->...", x1, x2)


def matvec(xp: NamespaceBase, x1: OperandLike, x2: OperandLike, /) -> Any:
    """Returns the products of matrices and vectors, as ``numpy.matvec``.

    Args:
        x1: [..., m, n] the matrices.
        x2: [..., n] the vectors.

    Raises:
        ValueError: for arrays of fewer axes, and for vectors of another number of elements.
    """
    _check_vectors(x2, "x2", x1, "x1", -1)
    return xp.einsum("...ij,...j->...i", x1, x2)


def vecmat(xp: NamespaceBase, x1: OperandLike, x2: OperandLike, /) -> Any:
    """Returns the products of the conjugates of vectors and matrices, as ``numpy.vecmat``.

    Args:
        x1: [..., n] the vectors.
        x2: [..., n, m] the matrices.

    Raises:
        ValueError: for arrays of fewer axes, and for vectors of another number of elements.
    """
    _check_vectors(x1, "x1", x2, "x2", -2)
    if type_of(x1).dtype.kind == "c":
        x1 = xp.conjugate(x1)
    return xp.einsum("...i,...ij->...j", x1, x2)


def vdot(xp: NamespaceBase, a: OperandLike, b: OperandLike, /) -> Any:
    """Returns the sum of the conjugate of a times b, both flattened, as ``numpy.vdot``."""
    return vecdot(xp, ravel(xp, a), ravel(xp, b))


def inner(xp: NamespaceBase, a: OperandLike, b: OperandLike, /) -> Any:
    """Returns the sums of products over the last axes, as ``numpy.inner``."""
    if not (type_of(a).ndim and type_of(b).ndim):
        return xp.multiply(array_of(a), array_of(b))
    return tensordot(xp, a, b, axes=(-1, -1))


def outer(xp: NamespaceBase, a: OperandLike, b: OperandLike) -> Any:
    """Returns the products of all pairs of elements, as ``numpy.outer``."""
    return xp.multiply(xp.expand_dims(ravel(xp, a), 1), xp.expand_dims(ravel(xp, b), 0))


def kron(xp: NamespaceBase, a: OperandLike, b: OperandLike) -> Any:
    """Returns an array of blocks, b times each element of a, as ``numpy.kron``."""
    ndim = max(type_of(a).ndim, type_of(b).ndim)
    left, right = ((1,) * (ndim - type_of(x).ndim) + type_of(x).shape for x in (a, b))
    a = xp.reshape(a, [size for n in left for size in (n, 1)])
    b = xp.reshape(b, [size for n in right for size in (1, n)])
    return xp.reshape(xp.multiply(a, b), [n * m for n, m in zip(left, right, strict=True)])


def cross(
    xp: NamespaceBase,
    a: OperandLike,
    b: OperandLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    """Returns the cross products of vectors of three elements or two, as ``numpy.cross``.

    A vector of two elements has no third one, whose products are left out. Of two such vectors the third element of the
    product is returned.

    Args:
        a: [..., 3] or [..., 2] the first vectors.
        b: [..., 3] or [..., 2] the second vectors.
        axisa: the axis of a that holds a vector.
        axisb: the axis of b that holds a vector.
        axisc: the axis of the result that holds a vector.
        axis: all three.

    Raises:
        ValueError: if the vectors have another number of elements, and for numbers alone.
    """
    if not (type_of(a).ndim and type_of(b).ndim):
        raise ValueError("At least one array has zero dimension; give vectors of 2 or 3 elements")
    if axis is not None:
        axisa = axisb = axisc = integer("axis", axis)
    a, b = moveaxis(xp, a, axisa, 0), moveaxis(xp, b, axisb, 0)
    sizes = type_of(a).shape[0], type_of(b).shape[0]
    if not {*sizes} <= {2, 3}:
        raise ValueError(f"vectors have {sizes[0]} and {sizes[1]} elements; cross takes vectors of 2 or 3")
    of_a, of_b = ({i: xp.take(x, i, axis=0) for i in range(size)} for x, size in zip((a, b), sizes, strict=True))
    if sizes == (2, 2):
        return _component(xp, of_a, of_b, 2)
    return xp.stack([_component(xp, of_a, of_b, i) for i in range(3)], axis=axisc)


def _component(xp: NamespaceBase, of_a: Mapping[int, Any], of_b: Mapping[int, Any], i: int) -> Any:
    """Returns an element of a cross product, of vectors by the indices of their elements."""
    j, k = (i + 1) % 3, (i + 2) % 3
    left = xp.multiply(of_a[j], of_b[k]) if j in of_a and k in of_b else None
    right = xp.multiply(of_a[k], of_b[j]) if k in of_a and j in of_b else None
    if left is None:
        return xp.negative(right)
    return left if right is None else xp.subtract(left, right)


def _check_vectors(vectors: OperandLike, name: str, matrices: OperandLike, name_of_matrices: str, axis: int) -> None:
    """Checks that vectors have as many elements as matrices along an axis, of the last two.

    Raises:
        ValueError: if they have not.
    """
    of_vectors, of_matrices = type_of(vectors).shape, type_of(matrices).shape
    if len(of_matrices) < 2:
        raise ValueError(f"{name_of_matrices} is of shape {of_matrices}; give matrices, of two axes or more")
    if of_vectors[-1:] != (of_matrices[axis],):
        raise ValueError(
            f"{name} is of shape {of_vectors} and {name_of_matrices} of {of_matrices}; give vectors of "
            f"{of_matrices[axis]} elements"
        )


def _contracted(a: tuple[int, ...], b: tuple[int, ...], axes: Any) -> tuple[list[int], list[int]]:
    """Returns the axes of each array over which `tensordot` sums."""
    if isinstance(axes, SupportsIndex):
        count = operator.index(axes)
        if not 0 <= count <= min(len(a), len(b)):
            raise np.exceptions.AxisError(
                f"axes={count}, and the arrays have {len(a)} and {len(b)} axes; give 0 or more, at most these"
            )
        pair: Sequence[Sequence[SupportsIndex]] = (range(len(a) - count, len(a)), range(count))
    else:
        items = axes if np.iterable(axes) and not isinstance(axes, str) else ()
        pair = tuple((item,) if isinstance(item, SupportsIndex) else tuple(item) for item in items)
        if len(pair) != len((a, b)):
            raise ParameterTypeError(f"axes={axes!r}; give an integer, or two sequences of axes", field="axes")
    of_a, of_b = ([counted_axis(i, len(shape)) for i in item] for shape, item in zip((a, b), pair, strict=True))
    if len(set(of_a)) < len(of_a) or len(set(of_b)) < len(of_b):
        raise ValueError(f"axes={axes}; give each axis of an array once")
    if [a[i] for i in of_a] != [b[j] for j in of_b]:
        raise ValueError(f"the arrays are of shapes {a} and {b}, and axes={axes}; give axes of the same sizes")
    return of_a, of_b
