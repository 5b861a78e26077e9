"""Functions of single elements: the parts of floats, bits, and whether numbers are real."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall._src.device_arrays.scalars import typed
from shardcall.namespace.base import (
    NamespaceBase,
    array_of,
    converted,
    counted_axis,
    namespace_of,
    part_of,
    type_of,
)
from shardcall.namespace.integers import integer
from shardcall_core.types.arrays import NDArray


def ldexp(xp: NamespaceBase, x1: OperandLike, x2: OperandLike, /, **options: Any) -> Any:
    """Returns ``x1 * 2**x2``, rounded once, as ``numpy.ldexp``."""
    return xp.call("ldexp", *typed("ldexp", (x1, x2)), **options)


def frexp(xp: NamespaceBase, x: OperandLike, /, **options: Any) -> tuple[Any, Any]:
    """Returns mantissas from 0.5 to 1 and the exponents of 2 that they are multiplied by, as ``numpy.frexp``."""
    mantissa, exponent = xp.call("frexp", array_of(x), **options)
    return mantissa, exponent


def isreal(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns where the imaginary part of an array is 0, as ``numpy.isreal``."""
    return xp.equal(xp.imag(x), 0)


def iscomplex(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns where the imaginary part of an array is not 0, as ``numpy.iscomplex``."""
    return xp.not_equal(xp.imag(x), 0)


def real_if_close(xp: NamespaceBase, a: OperandLike, tol: float = 100) -> Any:
    """Returns the real part of an array if the imaginary one is small, as ``numpy.real_if_close``; waits to see that.

    Args:
        a: [...] the array.
        tol: the bound of the imaginary parts; if it is more than 1, in units of the resolution of the element type.
    """
    dtype = type_of(a).dtype
    if dtype.kind != "c":
        return array_of(a)
    bound = float(np.finfo(dtype).eps) * tol if tol > 1 else tol
    return xp.real(a) if bool(xp.all(xp.less(xp.absolute(xp.imag(a)), bound))) else array_of(a)


def sort_complex(xp: NamespaceBase, a: OperandLike) -> Any:
    """Returns an array sorted along its last axis, as complex numbers, as ``numpy.sort_complex``."""
    result = xp.sort(a)
    dtype = type_of(result).dtype
    if dtype.kind == "c":
        return result
    is_short = dtype in (np.int8, np.int16, np.uint8, np.uint16)
    return xp.astype(result, np.complex64 if is_short else np.complex128)


def packbits(xp: NamespaceBase, a: OperandLike, /, axis: int | None = None, bitorder: str = "big") -> Any:
    """Returns bytes of eight elements that are zero or not, as ``numpy.packbits``.

    Args:
        a: [...] integers or bool; zeros are added to a number of them that eight does not divide.
        axis: the axis; None for the flattened array.
        bitorder: ``"big"`` if the first element is the highest bit, or ``"little"``.

    Raises:
        TypeError: for other element types.
    """
    if (dtype := type_of(a).dtype).kind not in "biu":
        raise TypeError(f"a is of {dtype.name}; packbits takes integers and bool")
    weights, x, along = *_weights(bitorder), *_flat_without(xp, a, axis)
    ndim, size = type_of(x).ndim, type_of(x).shape[along]
    bits = xp.astype(xp.not_equal(x, 0), np.uint8)
    if size % 8:
        bits = xp.pad(bits, [(0, -size % 8 if i == along else 0) for i in range(ndim)])
    shape = type_of(x).shape
    bits = xp.reshape(bits, (*shape[:along], -(-size // 8), 8, *shape[along + 1 :]))
    factors = weights.reshape([8 if i == along + 1 else 1 for i in range(ndim + 1)])
    return xp.sum(xp.multiply(bits, factors), along + 1, np.uint8)


def unpackbits(
    xp: NamespaceBase, a: OperandLike, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    """Returns the bits of bytes, as ``numpy.unpackbits``.

    Args:
        a: [...] bytes, of uint8.
        axis: the axis; None for the flattened array.
        count: how many bits, zeros behind the last byte among them; negative to leave out as many; None for all.
        bitorder: ``"big"`` if the highest bit comes first, or ``"little"``.

    Raises:
        TypeError: for other element types.
        ValueError: for fewer bits than none.
    """
    if (dtype := type_of(a).dtype) != np.uint8:
        raise TypeError(f"a is of {dtype.name}; unpackbits takes uint8")
    weights, x, along = *_weights(bitorder), *_flat_without(xp, a, axis)
    shape = type_of(x).shape
    factors = weights.reshape([8 if i == along + 1 else 1 for i in range(len(shape) + 1)])
    bits = xp.not_equal(xp.bitwise_and(xp.expand_dims(x, along + 1), factors), 0)
    size = 8 * shape[along]
    result = xp.reshape(xp.astype(bits, np.uint8), (*shape[:along], size, *shape[along + 1 :]))
    if count is None:
        return result
    length = integer("count", count)
    if length < -size:
        raise ValueError(f"count={length}, and there are {size} bits; give {-size} or more")
    length = size + length if length < 0 else length
    if length > size:
        return xp.pad(result, [(0, length - size if i == along else 0) for i in range(len(shape))])
    return part_of(result, (*(slice(None),) * along, slice(length)))


def bitwise_count(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns the number of bits of the absolute values of integers that are 1, uint8, as ``numpy.bitwise_count``.

    Raises:
        TypeError: for other element types.
    """
    dtype = type_of(x).dtype
    if dtype.kind not in "biu":
        raise TypeError(f"x is of {dtype.name}; bitwise_count takes integers and bool")
    if dtype.kind == "b":
        return xp.astype(x, np.uint8)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    one, two, four = (unsigned.type(count) for count in (1, 2, 4))
    ones, pairs, nibbles, octets = (
        unsigned.type(int.from_bytes(bytes([byte]) * dtype.itemsize)) for byte in (0x55, 0x33, 0x0F, 0x01)
    )
    # The sums of 2, 4 and 8 bits, side by side in the number; the product adds up those of its bytes in the highest.
    bits = converted(xp, xp.absolute(x), unsigned)  # of the least integer, which is its own absolute value, too
    bits = xp.subtract(bits, xp.bitwise_and(xp.right_shift(bits, one), ones))
    bits = xp.add(xp.bitwise_and(bits, pairs), xp.bitwise_and(xp.right_shift(bits, two), pairs))
    bits = xp.bitwise_and(xp.add(bits, xp.right_shift(bits, four)), nibbles)
    if dtype.itemsize == 1:
        return bits
    total = xp.right_shift(xp.multiply(bits, octets), unsigned.type(8 * (dtype.itemsize - 1)))
    return converted(xp, total, np.dtype(np.uint8))


def spacing(xp: NamespaceBase, x: OperandLike) -> Any:
    """Returns the distance of numbers to their neighbours, as ``numpy.spacing``.

    The neighbour is the next number of a larger size, and the distance has the sign of the number; in float16 it is
    the next greater number, as in NumPy.

    Raises:
        TypeError: for other element types than NumPy's real numbers.
    """
    dtype = type_of(x).dtype
    try:
        result = np.spacing.resolve_dtypes((dtype, None))[1]
    except TypeError:
        result = dtype
    if result not in (np.float16, np.float32, np.float64):
        raise TypeError(f"x is of {dtype.name}; give float16, float32 or float64")
    info, is_half = np.finfo(result), result == np.float16
    x = converted(xp, x, result)
    mantissa, exponent = frexp(xp, x)  # which are those of subnormal numbers, too
    signs = xp.where(xp.less(mantissa, 0), result.type(1 if is_half else -1), result.type(1))
    if is_half:  # below a negative power of two are numbers at half of the distance
        exponent = xp.subtract(exponent, xp.equal(mantissa, -0.5))
    smallest = int(info.minexp - info.nmant)
    power = xp.maximum(xp.subtract(exponent, int(info.nmant + 1)), smallest)
    steps = ldexp(xp, signs, xp.where(xp.equal(mantissa, 0), smallest, power))
    is_last = xp.equal(x if is_half else xp.absolute(x), info.max)
    steps = xp.where(is_last, xp.multiply(signs, result.type(np.inf)), steps)
    return xp.where(xp.isfinite(x), steps, result.type(np.nan))


def _weights(bitorder: str) -> tuple[NDArray]:
    """Returns the values of eight bits, the first one's first.

    Raises:
        TypeError: for what is no text.
        ValueError: for another sequence than ``"big"`` and ``"little"``.
    """
    if not isinstance(bitorder, str):
        raise TypeError(f"bitorder={bitorder!r}; give 'big' or 'little'")
    if bitorder not in ("big", "little"):
        raise ValueError(f"bitorder={bitorder!r}; give 'big' or 'little'")
    return (np.uint8(1) << np.arange(8, dtype=np.uint8)[:: -1 if bitorder == "big" else 1],)


def _flat_without(xp: NamespaceBase, x: OperandLike, axis: int | None) -> tuple[Any, int]:
    """Returns an array, flattened without an axis, and the axis counted from the first."""
    if axis is None or not type_of(x).ndim:
        if axis is not None:
            counted_axis(axis, 1)
        return namespace_of(xp, x).reshape(array_of(x), -1), 0
    return array_of(x), counted_axis(axis, type_of(x).ndim)
