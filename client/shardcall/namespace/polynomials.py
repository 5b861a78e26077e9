"""Polynomials, as their coefficients from the highest power to the lowest."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import NamespaceBase, array_of, converted, namespace_of, part_of, type_of
from shardcall.namespace.contractions import dot, outer
from shardcall.namespace.control_flow import fori_loop, scan
from shardcall.namespace.creation import ones_like, zeros_like
from shardcall.namespace.integers import integer
from shardcall.namespace.joins import atleast_1d, hstack
from shardcall.namespace.selection import diag

MAX_UNROLLED = 16
"""The most steps that are written out; more are a loop, so that compile time is bounded."""


def vander(xp: NamespaceBase, x: OperandLike, N: int | None = None, increasing: bool = False) -> Any:  # noqa: N803
    """Returns the powers of numbers as the columns of a matrix, as ``numpy.vander``.

    Args:
        x: [size] the numbers.
        N: the number of columns; None for as many as there are numbers.
        increasing: whether the first column has the lowest power.

    Raises:
        ValueError: for an array of other than one axis, and a negative number of columns.
    """
    if type_of(x).ndim != 1:
        raise ValueError(f"x has {type_of(x).ndim} axes; give an array of one axis")
    (size,) = type_of(x).shape
    count = size if N is None else integer("N", N)
    if count < 0:
        raise ValueError(f"N={count}; give 0 or more")
    column = xp.reshape(converted(xp, x, np.promote_types(type_of(x).dtype, np.int64)), (-1, 1))
    ones = ones_like(xp, column)
    if count < 2:
        return ones if count else ones[:, :0]
    powers = xp.concatenate([ones, xp.cumprod(xp.broadcast_to(column, (size, count - 1)), 1)], 1)
    return powers if increasing else xp.flip(powers, 1)


def poly(xp: NamespaceBase, seq_of_zeros: OperandLike) -> Any:
    """Returns the coefficients of the polynomial with some zeros, or of that of a matrix, as ``numpy.poly``.

    It waits to see that complex zeros are in pairs, of which NumPy has real coefficients.

    Raises:
        ValueError: for an array that is neither of one axis nor a square matrix.
    """
    zeros, shape = _vector(xp, seq_of_zeros), type_of(seq_of_zeros).shape or (1,)
    if len(shape) == 2 and shape[0] == shape[1] and shape[0]:
        zeros = xp.linalg.eigvals(zeros)  # type: ignore[attr-defined]
    elif len(shape) != 1:
        raise ValueError(f"seq_of_zeros is of shape {shape}; give an array of one axis, or a square matrix")
    zeros = converted(xp, zeros, np.dtype(np.mintypecode(type_of(zeros).dtype.char)))
    (count,) = type_of(zeros).shape
    if not count:
        return 1.0
    result = xp.concatenate([ones_like(xp, zeros[:1]), zeros_like(xp, zeros)])

    def multiplied(i: Any, result: Any) -> Any:
        return xp.subtract(result, xp.multiply(zeros[i], xp.concatenate([zeros_like(xp, result[:1]), result[:-1]])))

    result = _repeated(xp, count, multiplied, result)
    if type_of(result).dtype.kind == "c" and bool(xp.all(xp.equal(xp.sort(zeros), xp.sort(xp.conjugate(zeros))))):
        return xp.real(result)
    return result


def roots(xp: NamespaceBase, p: OperandLike) -> Any:
    """Returns the zeros of a polynomial, as ``numpy.roots``; waits for the coefficients that are 0.

    Raises:
        ValueError: for coefficients of more than one axis.
    """
    coefficients = _vector(xp, p)
    if (ndim := type_of(coefficients).ndim) != 1:
        raise ValueError(f"p has {ndim} axes; give the coefficients of one polynomial")
    (indices,) = np.nonzero(xp.not_equal(coefficients, 0).get())
    if not indices.size:
        return xp.copy(np.zeros(0))
    first, last = int(indices[0]), int(indices[-1])
    behind = type_of(coefficients).shape[0] - last - 1
    coefficients = part_of(coefficients, slice(first, last + 1))
    if type_of(coefficients).dtype.kind not in "fc":
        coefficients = xp.astype(coefficients, np.float64)
    result: Any = np.zeros(0)
    if (degree := last - first) > 0:
        row = xp.reshape(xp.divide(xp.negative(coefficients[1:]), coefficients[0]), (1, -1))
        below = diag(xp, np.ones(degree - 1, type_of(coefficients).dtype), -1)
        result = xp.linalg.eigvals(xp.concatenate([row, below[1:]], 0))  # type: ignore[attr-defined]
    return hstack(xp, [result, np.zeros(behind, type_of(result).dtype)])


def polyval(xp: NamespaceBase, p: OperandLike, x: OperandLike) -> Any:
    """Returns the values of a polynomial, as ``numpy.polyval``.

    Args:
        p: [size] the coefficients; the values are of their common type with ``x``.
        x: [...] where to evaluate it.
    """
    p, x = array_of(p), array_of(x)
    result = zeros_like(xp, x)
    if not (size := _size(p)):
        return result
    result = xp.add(xp.multiply(result, x), part_of(p, 0))  # of the type of all values

    def added(i: Any, result: Any) -> Any:
        return xp.add(xp.multiply(result, x), part_of(p, i + 1))

    if size - 1 > MAX_UNROLLED and not hasattr(p, "__remote_array__"):
        p = xp.copy(p)
    return _repeated(xp, size - 1, added, result)


def polyadd(xp: NamespaceBase, a1: OperandLike, a2: OperandLike) -> Any:
    """Returns the sum of two polynomials, as ``numpy.polyadd``."""
    return xp.add(*_of_one_length(xp, a1, a2))


def polysub(xp: NamespaceBase, a1: OperandLike, a2: OperandLike) -> Any:
    """Returns the difference of two polynomials, as ``numpy.polysub``."""
    return xp.subtract(*_of_one_length(xp, a1, a2))


def polymul(xp: NamespaceBase, a1: OperandLike, a2: OperandLike) -> Any:
    """Returns the product of two polynomials, as ``numpy.polymul``; waits for their degrees.

    Raises:
        ValueError: for coefficients of more than one axis.
    """
    return xp.convolve(_without_leading_zeros(xp, a1), _without_leading_zeros(xp, a2))


def polydiv(xp: NamespaceBase, u: OperandLike, v: OperandLike) -> tuple[Any, Any]:
    """Returns the quotient of two polynomials and the remainder, as ``numpy.polydiv``; waits for its degree.

    Args:
        u: [size] the coefficients of the dividend.
        v: [size] those of the divisor; where the first is 0, the first ones of the remainder are NaN.

    Raises:
        ValueError: for a dividend of several axes.
    """
    dividend, divisor = (xp.add(_vector(xp, item), 0.0) for item in (u, v))
    dtype = np.result_type(type_of(dividend).dtype, type_of(divisor).dtype)
    dividend, divisor = converted(xp, dividend, dtype), converted(xp, divisor, dtype)
    if type_of(dividend).shape[0] < type_of(divisor).shape[0]:
        quotient, rest = xp.copy(np.zeros(1, dtype)), dividend
    else:
        if type_of(dividend).ndim > 1:
            raise ValueError(f"u is of shape {type_of(dividend).shape}; give an array of one axis")
        quotient, rest = _long_division(xp, dividend, divisor)
    is_zero = np.asarray(np.isclose(rest.get(), 0, rtol=1e-14))
    size = len(is_zero)
    first = min(int(np.argmin(is_zero)) if not is_zero.all() else size, max(size - 1, 0))
    return quotient, rest[first:] if first else rest


def polyder(xp: NamespaceBase, p: OperandLike, m: int = 1) -> Any:
    """Returns the derivative of a polynomial, as ``numpy.polyder``.

    Raises:
        ValueError: for a negative number of derivatives.
    """
    m, p = integer("m", m, int), array_of(p)
    if m < 0:
        raise ValueError(f"m={m}; give 0 or more derivatives")
    for _ in range(m):
        size = _size(p)
        p = xp.multiply(part_of(p, slice(-1)), np.arange(size - 1, 0, -1))
    size, *others = type_of(p).shape or (_size(p),)
    np.broadcast_shapes((max(size - 1, 0), *others), (max(size - 1, 0),))  # which NumPy computes, too
    return p


def polyint(xp: NamespaceBase, p: OperandLike, m: int = 1, k: OperandLike | None = None) -> Any:
    """Returns the integral of a polynomial, as ``numpy.polyint``.

    Args:
        p: [size] the coefficients.
        m: the number of integrals.
        k: the constants, in the sequence of the integrals; None for 0, and one number for all of them.

    Raises:
        ValueError: for a negative number of integrals, and fewer constants.
    """
    m, p = integer("m", m, int), array_of(p)
    if m < 0:
        raise ValueError(f"m={m}; give 0 or more integrals")
    constants: Any = np.zeros(m) if k is None else _vector(xp, k)
    if (length := type_of(constants).shape[0]) == 1 and m > 1:
        constants = namespace_of(xp, constants).multiply(constants[0], np.ones(m))
    elif length < m:
        raise ValueError(f"k has {length} constants; give one, or more than {m - 1}")
    for i in range(m):
        terms = xp.divide(p, np.arange(_size(p), 0, -1))
        p = xp.concatenate([terms, namespace_of(xp, constants).reshape(part_of(constants, i), 1)])
    return p


def polyfit(
    xp: NamespaceBase, x: OperandLike, y: OperandLike, deg: int, rcond: float | None = None, full: bool = False,
    w: OperandLike | None = None, cov: bool | str = False,
) -> Any:  # fmt: skip
    """Returns the polynomial of a degree that fits points best, as ``numpy.polyfit``; waits for the rank.

    Args:
        x: [points] the coordinates.
        y: [points] or [points, K] the values.
        deg: the degree.
        rcond: singular values up to that share of the largest one count as zero; None for the number of points times
            the resolution of the element type.
        full: whether to return what `LinalgNamespace.lstsq` returns beside the coefficients, and ``rcond``.
        w: [points] the factors of the residuals; None for 1.
        cov: whether to return the covariances of the coefficients; ``"unscaled"`` for those of weights that are
            inverse deviations.

    Raises:
        ValueError: for a negative degree, and too few points for covariances.
        TypeError: for arrays of other shapes.
    """
    count, x, y = int(deg) + 1, xp.add(x, 0.0), xp.add(y, 0.0)
    if count < 1:
        raise ValueError(f"deg={deg}; give 0 or more")
    _check_points(type_of(x).shape, type_of(y).shape)
    (size,) = type_of(x).shape
    share = size * float(np.finfo(type_of(x).dtype).eps) if rcond is None else rcond
    left, right = vander(xp, x, count), y
    if w is not None:
        weights = xp.add(w, 0.0)
        if type_of(weights).shape != (size,):
            raise TypeError(f"w is of shape {type_of(weights).shape}; give {size} numbers")
        column = xp.reshape(weights, (-1, 1))
        left = converted(xp, xp.multiply(left, column), type_of(left).dtype)
        right = xp.multiply(right, column if type_of(y).ndim == 2 else weights)
    scale = xp.sqrt(xp.sum(xp.multiply(left, left), 0))
    left = xp.divide(left, scale)
    result, residuals, rank, values = xp.linalg.lstsq(left, right, share)  # type: ignore[attr-defined]
    result = xp.divide(result, scale if type_of(result).ndim == 1 else xp.reshape(scale, (-1, 1)))
    if full:
        return result, residuals, rank, values, share
    if rank != count:
        warnings.warn("Polyfit may be poorly conditioned", np.exceptions.RankWarning, stacklevel=4)
    if not cov:
        return result
    base = xp.linalg.inv(dot(xp, xp.transpose(left), left))  # type: ignore[attr-defined]
    base = xp.divide(base, outer(xp, scale, scale))
    if cov == "unscaled":
        return result, base if type_of(y).ndim == 1 else xp.expand_dims(base, -1)
    if size <= count:
        raise ValueError(f"{size} points have no covariances of {count} coefficients; give more, or cov='unscaled'")
    factor = xp.divide(residuals, size - count)
    return result, xp.multiply(base if type_of(y).ndim == 1 else xp.expand_dims(base, -1), factor)


def _vector(xp: NamespaceBase, x: OperandLike) -> Any:
    return atleast_1d(xp, x)


def _size(p: Any) -> int:
    if not (shape := type_of(p).shape):
        raise TypeError("p has no axes; give the coefficients of a polynomial")
    return shape[0]


def _repeated(xp: NamespaceBase, count: int, step: Any, state: Any) -> Any:
    """Returns the last state of ``state = step(i, state)`` for each i below a number."""
    if count > MAX_UNROLLED:
        return fori_loop(xp, 0, count, step, state)
    for i in range(count):
        state = step(i, state)
    return state


def _of_one_length(xp: NamespaceBase, *polynomials: OperandLike) -> list[Any]:
    """Returns the coefficients of polynomials of the highest degree of them."""
    arrays = [_vector(xp, item) for item in polynomials]
    length = max(type_of(item).shape[0] for item in arrays)
    return [
        namespace_of(xp, item).concatenate([np.zeros(behind, type_of(item).dtype), item])
        if (behind := length - type_of(item).shape[0])
        else item
        for item in arrays
    ]


def _without_leading_zeros(xp: NamespaceBase, p: OperandLike) -> Any:
    p = _vector(xp, p)
    if type_of(p).ndim > 1:
        raise ValueError(f"an array of {type_of(p).ndim} axes; give the coefficients of one polynomial")
    of_p = namespace_of(xp, p)
    nonzero = of_p.not_equal(p, 0)
    indices = np.flatnonzero(nonzero if of_p is np else nonzero.get())
    if not indices.size:
        return np.zeros(1, type_of(p).dtype)
    return part_of(p, slice(int(indices[0]), None)) if indices[0] else p


def _long_division(xp: NamespaceBase, u: Any, v: Any) -> tuple[Any, Any]:
    """Returns the quotient of two polynomials, and the remainder with as many elements as the dividend."""
    (rows,), (width,) = type_of(u).shape, type_of(v).shape
    scale, divisor = xp.divide(1.0, v[:1]), xp.pad(v, (0, rows - width))
    nothing = np.zeros(1, type_of(u).dtype)

    def step(rest: Any, _: Any) -> tuple[Any, Any]:
        factor = xp.multiply(scale, rest[:1])
        rest = xp.subtract(rest, xp.multiply(factor, divisor))
        return xp.concatenate([rest[1:], nothing]), xp.concatenate([factor, rest[:1]])

    count = rows - width + 1
    if count > MAX_UNROLLED:
        rest, terms = scan(xp, step, u, None, count)
    else:
        rest, parts = u, []
        for _ in range(count):
            rest, term = step(rest, None)
            parts.append(term)
        terms = xp.stack(parts)
    # What a term of the quotient leaves of the first element is 0 but for rounding.
    return xp.copy(terms[:, 0]), xp.concatenate([terms[:, 1], rest[: width - 1]])


def _check_points(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    if len(x) != 1 or not x[0]:
        raise TypeError(f"x is of shape {x}; give one or more points, of one axis")
    if len(y) not in (1, 2) or y[0] != x[0]:
        raise TypeError(f"y is of shape {y}; give a value for each of {x[0]} points, in one axis or two")
