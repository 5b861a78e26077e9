"""Rows of the table for decompositions, inverses and determinants of matrices: the last two axes of an array.

Matrices of a batch that is sharded are computed by the devices that have them. A matrix that is sharded itself is
computed by one device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.call_error import CallError, Reason
from shardcall_core.functions import linalg_rules
from shardcall_core.layouts.layout import required
from shardcall_server.kernels.array_functions.row import AlignedAxes, BatchCheck, CallShapes, ResultBlock, Row
from shardcall_server.kernels.core.element_types import convert
from shardcall_server.kernels.core.reproducibility import Reproducibility

Compute = Callable[[ResultBlock, jax.Array], tuple[jax.Array, ...]]
"""Computes the results of matrices of the type that they are computed in, and bool [batch] where they failed."""

_SWEEPS = 8  # of all elements for each row: between those of an inverse and of singular values


def _of_batch(call: CallShapes) -> AlignedAxes:
    return ((*range(len(call.x) - 2), None, None),)


def _of_two(call: CallShapes) -> AlignedAxes:
    """Aligns the batches of matrices and right-hand sides, which are broadcast."""
    count = _batch_axes(call)

    def aligned(shape: tuple[int, ...], ndim: int) -> tuple[int | None, ...]:
        axes = range(count - ndim, count)
        batch = (i if shape[k] == call.shape[i] else None for k, i in enumerate(axes))
        return (*batch, *(None for _ in shape[ndim:]))

    x, b = (shape or () for shape in call.shapes)
    return aligned(x, len(x) - 2), aligned(b, max(len(b) - 2, 0))


def _batch_axes(call: CallShapes) -> int:
    x, b = (*(shape or () for shape in call.shapes), ())[:2]
    return max(len(x), len(b)) - 2


def _valid(block: ResultBlock, shape: Sequence[int]) -> jax.Array:
    """Returns where a batch has a matrix, and not padding: bool [batch]."""
    inside = jnp.ones(shape, bool)
    for axis, size in enumerate(shape):
        if size != block.call.shape[axis]:
            index = lax.broadcasted_iota(np.int64, shape, axis) + block.offsets[axis]
            inside &= index < block.call.shape[axis]
    return inside


def _body(compute: Compute) -> Callable[[ResultBlock, Sequence[jax.Array | None]], tuple[jax.Array, ...]]:
    def body(block: ResultBlock, operands: Sequence[jax.Array | None]) -> tuple[jax.Array, ...]:
        x = required(operands[0])
        x = convert(x, linalg_rules.numbers([np.dtype(x.dtype)], {}))
        # Padding is computed too; a unit matrix never fails.
        unit = jnp.eye(x.shape[-2], x.shape[-1], dtype=x.dtype)
        return compute(block, jnp.where(_valid(block, x.shape[:-2])[..., None, None], x, unit))

    return body


def _adjoint(x: jax.Array) -> jax.Array:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


def _cholesky(block: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    if not x.size:
        return x, jnp.zeros(x.shape[:-2], bool)
    lower = lax.linalg.cholesky(_adjoint(x) if block["upper"] else x, symmetrize_input=False)
    failed = jnp.isnan(jnp.diagonal(lower, axis1=-2, axis2=-1)).any(-1)
    return (_adjoint(lower) if block["upper"] else lower), failed


def _solved(x: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
    """Returns the solutions [..., N, K] of a batch, and where the matrices are singular."""
    lu, _, permutation = lax.linalg.lu(x)
    permuted = jnp.take_along_axis(b, permutation[..., None], -2)
    how = {"left_side": True}
    halves = lax.linalg.triangular_solve(lu, permuted, **how, lower=True, unit_diagonal=True)
    singular = (jnp.diagonal(lu, axis1=-2, axis2=-1) == 0).any(-1)
    return lax.linalg.triangular_solve(lu, halves, **how, lower=False), singular


def _inv(_: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    if not x.size:
        return x, jnp.zeros(x.shape[:-2], bool)
    return _solved(x, jnp.broadcast_to(jnp.eye(x.shape[-1], dtype=x.dtype), x.shape))


def _solve(block: ResultBlock, operands: Sequence[jax.Array | None]) -> tuple[jax.Array, ...]:
    x, b = (convert(required(operand), block.dtype) for operand in operands)
    is_vector = len(required(block.call.shapes[1])) == 1
    b = b[..., None] if is_vector else b
    batch = block.shape[: _batch_axes(block.call)]
    if 0 in block.shape:
        return jnp.zeros(block.shape, block.dtype), jnp.zeros(batch, bool)
    x, b = (jnp.broadcast_to(array, (*batch, *array.shape[-2:])) for array in (x, b))
    unit = jnp.eye(x.shape[-1], dtype=x.dtype)
    solution, singular = _solved(jnp.where(_valid(block, batch)[..., None, None], x, unit), b)
    return (solution[..., 0] if is_vector else solution), singular


def _solve_triangular(block: ResultBlock, operands: Sequence[jax.Array | None]) -> tuple[jax.Array, ...]:
    x, b, shape = _systems(block, operands)
    if not b.size:
        return jnp.zeros(block.shape, block.dtype), jnp.zeros(b.shape[:-2], bool)
    solution = lax.linalg.triangular_solve(
        x,
        b,
        left_side=True,
        lower=block["lower"],
        transpose_a=block["trans"] != "N",
        conjugate_a=block["trans"] == "C",
        unit_diagonal=block["unit_diagonal"],
    )
    singular = (jnp.diagonal(x, axis1=-2, axis2=-1) == 0).any(-1)
    return solution.reshape(shape), jnp.zeros_like(singular) if block["unit_diagonal"] else singular


def _systems(block: ResultBlock, operands: Sequence[jax.Array | None]) -> tuple[jax.Array, jax.Array, tuple[int, ...]]:
    """Returns matrices and right-hand sides [..., N, K] of one batch, and the shape of the solutions."""
    x, b = (convert(required(operand), block.dtype) for operand in operands)
    b = b[..., None] if len(required(block.call.shapes[1])) == 1 else b
    batch = block.shape[: _batch_axes(block.call)]
    x, b = (jnp.broadcast_to(item, (*batch, *item.shape[-2:])) for item in (x, b))
    unit = jnp.eye(x.shape[-1], dtype=x.dtype)
    return jnp.where(_valid(block, batch)[..., None, None], x, unit), b, block.shape


def _factors(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the factors of determinants [..., N], and the signs of their permutations [...]."""
    if not x.size:
        return jnp.ones((*x.shape[:-2], 0), x.dtype), jnp.ones(x.shape[:-2], x.dtype)
    lu, pivots, _ = lax.linalg.lu(x)
    moved = jnp.count_nonzero(pivots != lax.iota(pivots.dtype, x.shape[-1]), axis=-1)
    return jnp.diagonal(lu, axis1=-2, axis2=-1), jnp.where(moved % 2 == 0, 1, -1).astype(x.dtype)


def _det(_: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    factors, sign = _factors(x)
    return (jnp.prod(factors, -1) * sign,)


def _slogdet(_: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    factors, sign = _factors(x)
    sizes = jnp.abs(factors)
    signs = jnp.where(sizes == 0, 0, factors / jnp.where(sizes == 0, 1, sizes).astype(x.dtype))
    return jnp.prod(signs, -1) * sign, jnp.sum(jnp.log(sizes), -1)


def _eigh(block: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    if not x.size:
        return jnp.zeros(x.shape[:-1], x.real.dtype), x, jnp.zeros(x.shape[:-2], bool)
    vectors, values = lax.linalg.eigh(x, lower=block["UPLO"] == "L", symmetrize_input=False)
    return values, vectors, jnp.isnan(values).any(-1)


def _eigvalsh(block: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    values, _, failed = _eigh(block, x)
    return values, failed


def _eig(_: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    values, vectors, failed = _general(x, vectors=True)
    return values, vectors, failed


def _eigvals(_: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    values, _vectors, failed = _general(x, vectors=False)
    return values, failed


def _general(x: jax.Array, *, vectors: bool) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the eigenvalues and eigenvectors of matrices, and where they do not converge.

    Raises:
        CallError: on other devices than CPUs.
    """
    if (platform := jax.default_backend()) != "cpu":
        raise CallError(
            Reason.NOT_SUPPORTED,
            f"eigenvalues of general matrices are computed on CPUs alone, and the devices are of {platform}; call eigh "
            "for Hermitian matrices, or NumPy with array.get()",
            field="x",
        )
    dtype = np.result_type(x.dtype, np.complex64)
    if not x.size:
        return jnp.zeros(x.shape[:-1], dtype), x.astype(dtype), jnp.zeros(x.shape[:-2], bool)
    wrong = ~jnp.isfinite(x).all((-2, -1))
    x = jnp.where(wrong[..., None, None], jnp.eye(x.shape[-1], dtype=x.dtype), x)
    values, *right = lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=vectors)
    return values, right[0] if vectors else x, wrong | jnp.isnan(values).any(-1)


def _svd(block: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    *leading, rows, columns = x.shape
    if not x.size:
        inner = min(rows, columns)
        left, right = (rows, columns) if block["full_matrices"] else (inner, inner)
        shapes = (rows, left), (right, columns)
        units = [jnp.broadcast_to(jnp.eye(m, n, dtype=x.dtype), (*leading, m, n)) for m, n in shapes]
        return units[0], jnp.zeros((*leading, inner), x.real.dtype), units[1], jnp.zeros(leading, bool)
    u, values, v = lax.linalg.svd(x, full_matrices=block["full_matrices"], compute_uv=True)
    return u, values, v, jnp.isnan(values).any(-1)


def _svdvals(_: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    if not x.size:
        return jnp.zeros((*x.shape[:-2], min(x.shape[-2:])), x.real.dtype), jnp.zeros(x.shape[:-2], bool)
    values: jax.Array = lax.linalg.svd(x, compute_uv=False)
    return values, jnp.isnan(values).any(-1)


def _qr(block: ResultBlock, x: jax.Array) -> tuple[jax.Array, ...]:
    *leading, rows, columns = x.shape
    is_full = block["mode"] == "complete"
    if not x.size:
        inner = rows if is_full else min(rows, columns)
        unit = jnp.broadcast_to(jnp.eye(rows, inner, dtype=x.dtype), (*leading, rows, inner))
        return unit, jnp.zeros((*leading, inner, columns), x.dtype)
    q, r = lax.linalg.qr(x, full_matrices=is_full)
    return q, r


def _products(shape: tuple[int, ...]) -> int:
    return _SWEEPS * math.prod(shape) * min(shape[-2:])


def _row(
    name: str,
    compute: Compute,
    *,
    failure: str = "",
    keeps_shape: bool = False,
) -> Row:
    return Row(
        name,
        _body(compute),
        aligned=_of_batch,
        origins=(lambda call: tuple(range(len(call.x)))) if keeps_shape else None,
        batch_check=BatchCheck(0, failure, lambda call: len(call.x) - 2) if failure else None,
        needs_complete_axes=True,
        products=_products,
        reproducibility=Reproducibility.NOT_PROMISED,
    )


def rows() -> tuple[Row, ...]:
    """Returns the rows."""
    singular = "x has a singular matrix, which has no inverse; call pinv or lstsq in its place"
    unfinished = "x has a matrix whose {} do not converge, as with NaN; give finite numbers"
    return (
        _row(
            "cholesky",
            _cholesky,
            failure="x has a matrix that is not positive definite; give Hermitian ones with positive eigenvalues",
            keeps_shape=True,
        ),
        _row("inv", _inv, failure=singular, keeps_shape=True),
        Row(
            "solve",
            _solve,
            aligned=_of_two,
            main=1,
            batch_check=BatchCheck(0, singular, _batch_axes),
            needs_complete_axes=True,
            products=_products,
            reproducibility=Reproducibility.NOT_PROMISED,
        ),
        Row(
            "solve_triangular",
            _solve_triangular,
            aligned=_of_two,
            main=1,
            batch_check=BatchCheck(0, "x has a zero on the diagonal of a triangular matrix; give others", _batch_axes),
            needs_complete_axes=True,
            products=_products,
            reproducibility=Reproducibility.NOT_PROMISED,
        ),
        _row("det", _det),
        _row("slogdet", _slogdet),
        _row("eigh", _eigh, failure=unfinished.format("eigenvalues")),
        _row("eigvalsh", _eigvalsh, failure=unfinished.format("eigenvalues")),
        _row("eig", _eig, failure=unfinished.format("eigenvalues")),
        _row("eigvals", _eigvals, failure=unfinished.format("eigenvalues")),
        _row("svd", _svd, failure=unfinished.format("singular values")),
        _row("svdvals", _svdvals, failure=unfinished.format("singular values")),
        _row("qr", _qr),
    )
