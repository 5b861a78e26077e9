"""Linear algebra of arrays on the mesh, `client.xp.linalg`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from shardcall._src.device_arrays.operands import OperandLike
from shardcall.namespace.base import converted, part_of, type_of
from shardcall.namespace.integers import integer
from shardcall_core.types.tracebacks import shortened

_NO_VALUE: Any = inspect.signature(np.linalg.pinv).parameters["rtol"].default


class EighResult(NamedTuple):
    """The result of `LinalgNamespace.eigh`, as ``numpy.linalg.eigh`` has it."""

    eigenvalues: Any
    eigenvectors: Any


class EigResult(NamedTuple):
    """The result of `LinalgNamespace.eig`, as ``numpy.linalg.eig`` has it."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """The result of `LinalgNamespace.qr`, as ``numpy.linalg.qr`` has it."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """The result of `LinalgNamespace.svd`, as ``numpy.linalg.svd`` has it."""

    U: Any
    S: Any
    Vh: Any


class SlogdetResult(NamedTuple):
    """The result of `LinalgNamespace.slogdet`, as ``numpy.linalg.slogdet`` has it."""

    sign: Any
    logabsdet: Any


@shortened
class LinalgNamespace:
    """Linear algebra with the names and arguments of ``numpy.linalg``.

    Functions of matrices take the last two axes of an array. The matrices of a batch that is sharded are computed by
    the devices that have them; a matrix that is sharded itself is computed by one device. Matrices that have no result,
    such as singular ones of `inv`, are refused as the values are computed: by a `shardcall.LinAlgError`, which is a
    ``numpy.linalg.LinAlgError``, when the result is read. Options are ``mesh``, the specs of the operands and
    of an only result (``spec``, ``b_spec``, ``out_spec``), ``strategy`` and ``timeout``, as of the client's methods.

    Args:
        xp: the namespace that this is part of.
    """

    def __init__(self, xp: Any) -> None:
        self._xp = xp

    def cholesky(self, a: OperandLike, /, *, upper: bool = False, **options: Any) -> Any:
        """Returns the Cholesky factors of matrices that are positive definite, as ``numpy.linalg.cholesky``."""
        return self._xp.call("cholesky", _square(a), upper=upper, **options)

    def inv(self, a: OperandLike, **options: Any) -> Any:
        """Returns the inverses of matrices, as ``numpy.linalg.inv``."""
        return self._xp.call("inv", _square(a), **options)

    def solve(self, a: OperandLike, b: OperandLike, **options: Any) -> Any:
        """Returns the solutions of linear equations, as ``numpy.linalg.solve``."""
        return self._xp.call("solve", _square(a), b, **options)

    def det(self, a: OperandLike, **options: Any) -> Any:
        """Returns the determinants of matrices, as ``numpy.linalg.det``."""
        return self._xp.call("det", _square(a), **options)

    def slogdet(self, a: OperandLike, **options: Any) -> SlogdetResult:
        """Returns the signs and the logarithms of determinants, as ``numpy.linalg.slogdet``."""
        return SlogdetResult(*self._xp.call("slogdet", _square(a), **options))

    def eigh(self, a: OperandLike, UPLO: str = "L", **options: Any) -> EighResult:  # noqa: N803  # NumPy's name
        """Returns the eigenvalues and eigenvectors of Hermitian matrices, as ``numpy.linalg.eigh``."""
        return EighResult(*self._xp.call("eigh", _square(a), UPLO=UPLO.upper(), **options))

    def eigvalsh(self, a: OperandLike, UPLO: str = "L", **options: Any) -> Any:  # noqa: N803  # NumPy's name
        """Returns the eigenvalues of Hermitian matrices, as ``numpy.linalg.eigvalsh``."""
        return self._xp.call("eigvalsh", _square(a), UPLO=UPLO.upper(), **options)

    def eig(self, a: OperandLike, **options: Any) -> EigResult:
        """Returns the eigenvalues and eigenvectors of matrices, as ``numpy.linalg.eig``; on CPUs alone.

        They are complex, but of real matrices all of whose eigenvalues are real, for which it waits.
        """
        values, vectors = self._xp.call("eig", _square(a), **options)
        if self._all_real(a, values):
            return EigResult(self._xp.real(values), self._xp.real(vectors))
        return EigResult(values, vectors)

    def eigvals(self, a: OperandLike, **options: Any) -> Any:
        """Returns the eigenvalues of matrices, as ``numpy.linalg.eigvals``; on CPUs alone.

        They are complex, but of real matrices all of whose eigenvalues are real, for which it waits.
        """
        values = self._xp.call("eigvals", _square(a), **options)
        return self._xp.real(values) if self._all_real(a, values) else values

    def solve_triangular(
        self, a: OperandLike, b: OperandLike, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False,
        overwrite_b: bool = False, check_finite: bool = True, **options: Any,
    ) -> Any:  # fmt: skip
        """Returns the solutions of linear equations of triangular matrices, as ``scipy.linalg.solve_triangular``.

        Args:
            a: [..., N, N] the matrices, of which one triangle is read.
            b: [N] or [..., N, K] the right-hand sides.
            trans: 0 or ``"N"`` for the matrices, 1 or ``"T"`` for their transposes, 2 or ``"C"`` for their conjugate
                transposes.
            lower: whether the lower triangles are read.
            unit_diagonal: whether the diagonals count as ones.
            overwrite_b: has no effect.
            check_finite: has no effect: values that are not finite give such results.
            options: those of `solve`.

        Raises:
            ValueError: for another ``trans``.
        """
        del overwrite_b, check_finite
        names = {0: "N", 1: "T", 2: "C", "N": "N", "T": "T", "C": "C"}
        if trans not in names:
            raise ValueError(f"trans={trans!r}; give 0, 1, 2, 'N', 'T' or 'C'")
        how = {"trans": names[trans], "lower": bool(lower), "unit_diagonal": bool(unit_diagonal)}
        return self._xp.call("solve_triangular", _square(a), b, **how, **options)

    def cho_factor(
        self, a: OperandLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
    ) -> tuple[Any, bool]:
        """Returns Cholesky factors for `cho_solve`, as ``scipy.linalg.cho_factor``, and whether they are lower ones.

        The other triangle of the factors has zeros. ``overwrite_a`` and ``check_finite`` have no effect.
        """
        del overwrite_a, check_finite
        return self.cholesky(a, upper=not lower), lower

    def cho_solve(
        self, c_and_lower: tuple[OperandLike, bool], b: OperandLike, overwrite_b: bool = False,
        check_finite: bool = True,
    ) -> Any:  # fmt: skip
        """Returns the solutions of linear equations from the result of `cho_factor`, as ``scipy.linalg.cho_solve``.

        ``overwrite_b`` and ``check_finite`` have no effect.
        """
        del overwrite_b, check_finite
        factor, lower = c_and_lower
        if lower:
            return self.solve_triangular(factor, self.solve_triangular(factor, b, lower=True), "C", lower=True)
        return self.solve_triangular(factor, self.solve_triangular(factor, b, "C"))

    def svd(self, a: OperandLike, full_matrices: bool = True, compute_uv: bool = True, **options: Any) -> Any:
        """Returns the singular value decompositions of matrices, as ``numpy.linalg.svd``."""
        if not compute_uv:
            return self.svdvals(a, **options)
        return SVDResult(*self._xp.call("svd", _matrices(a), full_matrices=full_matrices, **options))

    def svdvals(self, x: OperandLike, /, **options: Any) -> Any:
        """Returns the singular values of matrices, as ``numpy.linalg.svdvals``."""
        return self._xp.call("svdvals", _matrices(x), **options)

    def qr(self, a: OperandLike, mode: str = "reduced", **options: Any) -> Any:
        """Returns the QR decompositions of matrices, as ``numpy.linalg.qr``; of the mode ``"r"`` R alone.

        Raises:
            ValueError: for other modes than ``"reduced"``, ``"complete"`` and ``"r"``.
        """
        if mode not in ("reduced", "complete", "r"):
            raise ValueError(f"mode={mode!r}; give 'reduced', 'complete' or 'r'")
        result = QRResult(*self._xp.call("qr", _matrices(a), mode="reduced" if mode == "r" else mode, **options))
        return result.R if mode == "r" else result

    def pinv(self, a: OperandLike, rcond: Any = None, hermitian: bool = False, *, rtol: Any = _NO_VALUE) -> Any:
        """Returns the pseudo-inverses of matrices, as ``numpy.linalg.pinv``.

        Args:
            a: [..., M, N] the matrices.
            rcond: singular values below that share of the largest one count as zero; None for 1e-15.
            hermitian: accepted as NumPy does; the result is the same.
            rtol: as ``rcond``, and None for the larger of M and N times the resolution of the element type.

        Raises:
            ValueError: for both ``rcond`` and ``rtol``.
        """
        xp, shape = self._xp, type_of(_matrices(a)).shape
        if rcond is not None and rtol is not _NO_VALUE:
            raise ValueError(f"rcond={rcond} and rtol={rtol}; give one of them")
        a = _square(a) if hermitian and 0 not in shape else a
        u, s, v = self.svd(a, full_matrices=False)
        if rcond is None:
            resolution = max(shape[-2:]) * float(np.finfo(type_of(s).dtype).eps)
            rcond = 1e-15 if rtol is _NO_VALUE else resolution if rtol is None else rtol
        if not shape[-1] or not shape[-2]:
            return xp.broadcast_to(np.zeros((), type_of(u).dtype), (*shape[:-2], shape[-1], shape[-2]))
        if type_of(rcond).ndim > len(shape) - 2:
            raise ValueError(f"rcond is of shape {type_of(rcond).shape} and a of {shape}; give one for each matrix")
        cutoff = xp.multiply(xp.max(s, -1, keepdims=True), _with_axis(rcond))
        is_large = xp.greater(s, cutoff)
        inverses = xp.where(is_large, xp.divide(1, xp.where(is_large, s, 1)), 0)
        scaled = xp.multiply(xp.expand_dims(inverses, -1), self._adjoint(u))
        return xp.matmul(self._adjoint(v), scaled)

    def matrix_rank(
        self, A: OperandLike, tol: Any = None, hermitian: bool = False, *, rtol: Any = None  # noqa: N803  # NumPy's name
    ) -> Any:  # fmt: skip
        """Returns how many singular values of matrices are not zero, as ``numpy.linalg.matrix_rank``.

        Args:
            A: [..., M, N] the matrices.
            tol: singular values up to it count as zero; None for ``rtol`` times the largest one.
            hermitian: accepted as NumPy does; the result is the same.
            rtol: None for the larger of M and N times the resolution of the element type.

        Raises:
            ValueError: for both ``tol`` and ``rtol``.
        """
        if tol is not None and rtol is not None:
            raise ValueError(f"tol={tol!r} and rtol={rtol!r} are two bounds of one number; give one of them")
        xp, shape = self._xp, type_of(A).shape
        if len(shape) < 2:
            return xp.astype(xp.any(xp.not_equal(A, 0)), np.int64)
        values = self.svdvals(_square(A) if hermitian else A)
        if tol is None:
            eps = float(np.finfo(type_of(values).dtype).eps)
            share = max(shape[-2:]) * eps if rtol is None else _with_axis(rtol)
            threshold = xp.multiply(xp.max(values, -1, keepdims=True, initial=0), share)
        else:
            threshold = _with_axis(tol)
        return xp.sum(xp.greater(values, threshold), -1)

    def cond(self, x: OperandLike, p: Any = None) -> Any:
        """Returns the condition numbers of matrices, as ``numpy.linalg.cond``; those of a norm ``p`` by an inverse.

        That of a singular matrix is infinite.

        Raises:
            numpy.linalg.LinAlgError: for matrices without elements, and those that are not square with a norm ``p``.
        """
        xp = self._xp
        if 0 in type_of(x).shape[-2:]:
            raise np.linalg.LinAlgError(f"x is of shape {type_of(x).shape} and has no condition; give elements")
        if p in (None, 2, -2):
            values = self.svdvals(x)
            ends = xp.take(values, np.array(0), -1), xp.take(values, np.array(-1), -1)
            ratio = xp.divide(*reversed(ends)) if p == -2 else xp.divide(*ends)
        else:
            inverses = self._inverses(x)
            ratio = xp.multiply(self.norm(x, p, (-2, -1)), self.norm(inverses, p, (-2, -1)))
        is_singular = xp.logical_and(xp.isnan(ratio), xp.logical_not(xp.any(xp.isnan(x), (-2, -1))))
        return xp.where(is_singular, type_of(ratio).dtype.type(np.inf), ratio)

    def _inverses(self, x: OperandLike) -> Any:
        """Returns the inverses of matrices, NaN for singular ones."""
        xp = self._xp
        is_singular = xp.equal(self.slogdet(x).sign, 0)[..., None, None]
        inverses = self.inv(xp.where(is_singular, np.eye(type_of(x).shape[-1], dtype=type_of(x).dtype), x))
        return xp.where(is_singular, type_of(inverses).dtype.type(np.nan), inverses)

    def lstsq(self, a: OperandLike, b: OperandLike, rcond: float | None = None) -> tuple[Any, Any, Any, Any]:
        """Returns the least-squares solution of linear equations, as ``numpy.linalg.lstsq``; it waits for the rank.

        Args:
            a: [M, N] the matrix.
            b: [M] or [M, K] the right-hand sides.
            rcond: singular values up to that share of the largest one count as zero; None for the larger of M and N
                times the resolution of the element type.

        Returns:
            The solution, the sums of squared residuals (none if the rank is less than N, or M at most N), the rank, and
            the singular values.
        """
        if type_of(a).ndim != 2:
            raise np.linalg.LinAlgError(f"a has {type_of(a).ndim} axes; give one matrix")
        xp, (rows, columns) = self._xp, type_of(a).shape
        if type_of(b).shape[:1] != (rows,):
            raise np.linalg.LinAlgError(f"a has {rows} rows and b is of shape {type_of(b).shape}; give as many")
        types = type_of(a).dtype, type_of(b).dtype
        common = np.result_type(*(np.float64 if dtype.kind in "biu" else dtype for dtype in types))
        wide = np.dtype(np.complex128 if common.kind == "c" else np.float64)  # as NumPy computes
        a, b = converted(xp, a, wide), converted(xp, b, wide)
        u, s, v = self.svd(a, full_matrices=False)
        share = max(rows, columns) * float(np.finfo(common).eps) if rcond is None else rcond
        is_large = xp.greater(s, xp.multiply(xp.max(s, initial=0), share))
        rank = np.int32(int(xp.sum(is_large)))  # as NumPy has it
        inverses = xp.where(is_large, xp.divide(1, xp.where(is_large, s, 1)), 0)
        parts = xp.matmul(self._adjoint(u), b)
        scaled = xp.multiply(inverses if type_of(b).ndim == 1 else xp.expand_dims(inverses, -1), parts)
        solution = xp.matmul(self._adjoint(v), scaled)
        real = np.finfo(common).dtype
        values = converted(xp, s, real)
        if rank < columns or rows <= columns:
            return converted(xp, solution, common), xp.copy(np.zeros(0, real)), rank, values
        apart = xp.absolute(xp.subtract(xp.matmul(a, solution), b))
        squares = xp.sum(xp.square(apart), 0)
        return converted(xp, solution, common), converted(xp, xp.reshape(squares, -1), real), rank, values

    def matrix_power(self, a: OperandLike, n: int) -> Any:
        """Returns the powers of matrices, as ``numpy.linalg.matrix_power``; of negative ones by inverses."""
        xp, shape = self._xp, type_of(_square(a)).shape
        n = integer("n", n)
        if n == 0:
            return xp.broadcast_to(np.eye(shape[-1], dtype=type_of(a).dtype), shape)
        base, power = (self.inv(a), -n) if n < 0 else (a, n)
        result = None
        while power:
            power, bit = divmod(power, 2)
            if bit:
                result = base if result is None else xp.matmul(result, base)
            base = xp.matmul(base, base) if power else base
        return xp.copy(result) if result is a else result

    def multi_dot(self, arrays: Sequence[OperandLike]) -> Any:
        """Returns the product of matrices, as ``numpy.linalg.multi_dot``, from the first to the last.

        Raises:
            ValueError: for fewer than two arrays.
            numpy.linalg.LinAlgError: if one is no matrix; the first and the last may be vectors.
        """
        if len(arrays) < 2:
            raise ValueError(f"{len(arrays)} arrays; give two or more")
        if len(arrays) == 2:
            return self._xp.dot(*arrays)
        for i, array in enumerate(arrays):
            if (ndim := type_of(array).ndim) != 2 and (ndim != 1 or i not in (0, len(arrays) - 1)):
                raise np.linalg.LinAlgError(f"arrays[{i}] has {ndim} axes; give matrices, or vectors at the ends")
        return reduce(self._xp.matmul, arrays)

    def norm(self, x: OperandLike, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
        """Returns the norm of vectors or matrices, as ``numpy.linalg.norm``.

        Args:
            x: [...] the array.
            ord: the order of the norm: a number, ``inf``, ``-inf``, and of matrices ``"fro"`` and ``"nuc"``; None for
                the root of the sum of squares.
            axis: one axis of vectors or two of matrices; None for all elements, or the axes of one vector or matrix.
            keepdims: keep the reduced axes, with one element each.

        Raises:
            ValueError: for an order that there is not.
        """
        ndim = type_of(x).ndim
        if axis is None and (ord is None or (ndim == 2 and ord in ("f", "fro")) or (ndim == 1 and ord == 2)):
            return self._root_of_squares(x, None, keepdims)
        axes = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (_integer(axis),)
        axes = normalize_axis_tuple(axes, ndim)
        if len(axes) == 1:
            return self._vector_norm(x, 2 if ord is None else ord, axes[0], keepdims)
        if len(axes) != 2:
            raise ValueError(f"a norm of {len(axes)} axes; name one axis of vectors or two of matrices")
        return self._matrix_norm(x, "fro" if ord is None else ord, axes, keepdims)

    def vector_norm(self, x: OperandLike, /, *, axis: Any = None, ord: Any = 2, keepdims: bool = False) -> Any:  # noqa: A002
        """Returns the norm of vectors along axes, all by default, as ``numpy.linalg.vector_norm``."""
        axis = None if axis is None else normalize_axis_tuple(axis, type_of(x).ndim)
        return self._vector_norm(x, 2 if ord is None else ord, axis, keepdims)

    def matrix_norm(self, x: OperandLike, /, *, ord: Any = "fro", keepdims: bool = False) -> Any:  # noqa: A002
        """Returns the norm of matrices, as ``numpy.linalg.matrix_norm``."""
        return self._matrix_norm(
            x, "fro" if ord is None else ord, normalize_axis_tuple((-2, -1), type_of(x).ndim), keepdims
        )

    def cross(self, x1: OperandLike, x2: OperandLike, /, *, axis: int = -1) -> Any:
        """Returns the cross products of vectors of three elements, as ``numpy.linalg.cross``."""
        for x in (x1, x2):
            if type_of(x).shape[axis] != 3:
                raise ValueError(f"vectors of {type_of(x).shape[axis]} elements; give three")
        xp = self._xp
        (a1, a2, a3), (b1, b2, b3) = ([_row(x, i, axis) for i in range(3)] for x in (x1, x2))
        pairs = ((a2, b3, a3, b2), (a3, b1, a1, b3), (a1, b2, a2, b1))
        return xp.stack([xp.subtract(xp.multiply(a, b), xp.multiply(c, d)) for a, b, c, d in pairs], axis)

    def diagonal(self, x: OperandLike, /, *, offset: int = 0, **options: Any) -> Any:
        """Returns the diagonals of matrices, as ``numpy.linalg.diagonal``."""
        return self._xp.diagonal(x, offset, -2, -1, **options)

    def trace(self, x: OperandLike, /, *, offset: int = 0, dtype: Any = None, **options: Any) -> Any:
        """Returns the sums of the diagonals of matrices, as ``numpy.linalg.trace``."""
        return self._xp.trace(x, offset, -2, -1, dtype, **options)

    def matmul(self, x1: OperandLike, x2: OperandLike, /, **options: Any) -> Any:
        """Returns the product of matrices, as ``numpy.linalg.matmul``."""
        return self._xp.matmul(x1, x2, **options)

    def matrix_transpose(self, x: OperandLike, /) -> Any:
        """Returns matrices with their axes exchanged, as ``numpy.linalg.matrix_transpose``."""
        return self._xp.matrix_transpose(x)

    def outer(self, x1: OperandLike, x2: OperandLike, /) -> Any:
        """Returns the products of all pairs of elements of two vectors, as ``numpy.linalg.outer``."""
        if type_of(x1).ndim != 1 or type_of(x2).ndim != 1:
            raise ValueError(f"arrays of {type_of(x1).ndim} and {type_of(x2).ndim} axes; give two vectors")
        return self._xp.outer(x1, x2)

    def tensordot(self, x1: OperandLike, x2: OperandLike, /, *, axes: Any = 2) -> Any:
        """Returns the sum of products over axes, as ``numpy.linalg.tensordot``."""
        return self._xp.tensordot(x1, x2, axes=axes)

    def vecdot(self, x1: OperandLike, x2: OperandLike, /, *, axis: int = -1) -> Any:
        """Returns the products of vectors, the first ones conjugated, as ``numpy.linalg.vecdot``."""
        return self._xp.vecdot(x1, x2, axis=axis)

    def tensorinv(self, a: OperandLike, ind: int = 2) -> Any:
        """Returns the inverse of an array with regard to `tensordot`, as ``numpy.linalg.tensorinv``.

        Args:
            a: [...] the array, whose first axes have together as many elements as the others.
            ind: the number of the first axes.

        Raises:
            TypeError: for an array without axes.
            ValueError: for no first axes.
            numpy.linalg.LinAlgError: for other axes.
        """
        shape, first = type_of(a).shape, integer("ind", ind)
        if not shape:
            raise TypeError("a is of shape (); give an array with axes")
        if first <= 0:
            raise ValueError(f"ind={first}; give 1 or more")
        count = math.prod(shape[first:])
        if not count or count != math.prod(shape[:first]):
            raise np.linalg.LinAlgError(
                f"a is of shape {shape} and ind={first}; give as many elements along the first {first} axes as along "
                "the others"
            )
        inverse = self.inv(self._xp.reshape(a, (count, count)))
        return self._xp.reshape(inverse, shape[first:] + shape[:first])

    def tensorsolve(self, a: OperandLike, b: OperandLike, axes: Sequence[int] | None = None) -> Any:
        """Returns the x for which ``tensordot(a, x, x.ndim)`` is b, as ``numpy.linalg.tensorsolve``.

        Args:
            a: [..., ...] the array, which begins with the axes of b; the others are those of the result, and have
                together as many elements.
            b: [...] the right-hand side.
            axes: axes of a that come last before it is used; None for none.

        Raises:
            ValueError: for axes that there are not.
            numpy.linalg.LinAlgError: for axes of another number of elements.
        """
        xp, ndim = self._xp, type_of(a).ndim
        if axes is not None:
            permuted = [*range(ndim)]
            for axis in axes:
                if axis not in permuted:
                    raise ValueError(f"axes={axes}, and a has {ndim} axes; give some from 0 to {ndim - 1}")
                permuted.remove(axis)
                permuted.append(axis)
            a = xp.transpose(a, permuted)
        shape = type_of(a).shape
        result = shape[type_of(b).ndim - ndim :]
        count = math.prod(result)
        if math.prod(shape) != count**2:
            raise np.linalg.LinAlgError(
                f"a is of shape {shape} and b of {type_of(b).shape}; give as many elements along the axes of b as "
                "along the others"
            )
        return xp.reshape(self.solve(xp.reshape(a, (count, count)), xp.reshape(b, -1)), result)

    def _all_real(self, a: OperandLike, values: Any) -> bool:
        return type_of(a).dtype.kind != "c" and bool(self._xp.all(self._xp.equal(self._xp.imag(values), 0)))

    def _adjoint(self, x: Any) -> Any:
        return self._xp.conjugate(self._xp.matrix_transpose(x))

    def _root_of_squares(self, x: Any, axis: Any, keepdims: bool) -> Any:
        sizes = self._sizes(x)
        return self._xp.sqrt(self._xp.sum(self._xp.square(sizes), axis, keepdims=keepdims))

    def _sizes(self, x: Any) -> Any:
        """Returns the sizes of elements, integers as float64."""
        return self._xp.absolute(x if type_of(x).dtype.kind in "fc" else self._xp.astype(x, np.float64))

    def _vector_norm(self, x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:  # noqa: A002
        xp, sizes = self._xp, self._sizes(x)
        if isinstance(ord, str):
            raise ValueError(f"ord={ord!r} is an order of matrices; give a number")
        match ord:
            case math.inf:
                of_none = {"initial": 0} if 0 in type_of(x).shape else {}
                return xp.max(sizes, axis, keepdims=keepdims, **of_none)
            case _ if ord == -math.inf:
                return xp.min(sizes, axis, keepdims=keepdims)
            case 0:
                return xp.sum(xp.not_equal(x, 0), axis, type_of(sizes).dtype, keepdims=keepdims)
            case 1:
                return xp.sum(sizes, axis, keepdims=keepdims)
            case 2:
                return self._root_of_squares(x, axis, keepdims)
        return xp.power(xp.sum(xp.power(sizes, ord), axis, keepdims=keepdims), 1 / ord)

    def _matrix_norm(self, x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:  # noqa: A002
        xp, ndim = self._xp, type_of(x).ndim
        rows, columns = (i % ndim for i in axes)
        if rows == columns:
            raise ValueError(f"axis={axes} names one axis twice; name two")
        if ord in ("fro", "f"):
            return self._root_of_squares(x, axes, keepdims)
        if ord in (1, -1, math.inf, -math.inf):
            summed, left = (rows, columns) if abs(ord) == 1 else (columns, rows)
            extreme = xp.max if ord > 0 else xp.min
            none = {"initial": 0} if ord > 0 else {}
            result = extreme(xp.sum(self._sizes(x), summed, keepdims=True), left, keepdims=True, **none)
        elif ord in (2, -2, "nuc"):
            values = self.svdvals(xp.moveaxis(x, (rows, columns), (-2, -1)))
            reduced = xp.sum if ord == "nuc" else xp.max if ord == 2 else xp.min
            none = {"initial": 0} if ord == 2 else {}
            result = xp.expand_dims(reduced(values, -1, **none), tuple(sorted((rows, columns))))
        else:
            raise ValueError(f"ord={ord!r} is no order of matrices; give 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
        return result if keepdims else xp.squeeze(result, (rows, columns))


def _integer(axis: Any) -> int:
    try:
        return int(axis)
    except (TypeError, ValueError):
        raise TypeError(f"axis={axis!r}; give None, an integer or a tuple of integers") from None


def _matrices(a: OperandLike) -> OperandLike:
    """Returns an array of matrices.

    Raises:
        numpy.linalg.LinAlgError: if it has fewer than two axes.
    """
    if type_of(a).ndim < 2:
        raise np.linalg.LinAlgError(f"an array of {type_of(a).ndim} axes has no matrices; give two axes or more")
    return a


def _square(a: OperandLike) -> OperandLike:
    """Returns an array of square matrices.

    Raises:
        numpy.linalg.LinAlgError: if they are not.
    """
    shape = type_of(_matrices(a)).shape
    if shape[-1] != shape[-2]:
        raise np.linalg.LinAlgError(f"an array of shape {shape} has no square matrices; give them")
    return a


def _row(x: OperandLike, index: int, axis: int) -> Any:
    return part_of(x, (*(slice(None),) * (axis % type_of(x).ndim), index))


def _with_axis(share: Any) -> Any:
    """Returns a number, or an array of one for each matrix with an axis for the singular values."""
    return share if isinstance(share, int | float) else part_of(share, (..., None))
