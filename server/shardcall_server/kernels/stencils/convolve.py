"""The convolution of an array with a window along an axis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from shardcall_core.functions.signature import Signature
from shardcall_core.functions.stencils import ConvolveParameters, returned_sums
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import OperandTypes, block_shape, format_spec, required
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.blocks import fit, index_type, pad_axis, partition_spec, rows
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.stencils.exchange import Exchange, ShardedAxis
from shardcall_server.kernels.stencils.stencil import StencilKernel

MAX_UNROLLED = 32
"""The longest window whose products are unrolled; a longer one is a loop, so that compile time is bounded."""


@dataclass(frozen=True)
class Window:
    """The rows of the full convolution that are returned.

    Attributes:
        axis: the axis of the convolution.
        rows: rows N of x.
        length: elements L of v.
        start: the first row of the full convolution that is returned.
        count: the number of rows returned.
    """

    axis: int
    rows: int
    length: int
    start: int
    count: int

    @staticmethod
    def of(rows: int, length: int, mode: str, axis: int) -> Window:
        """Returns the window of a call; NumPy's, in which the longer of x and v counts as the array."""
        start, count = returned_sums(rows, length, mode)
        return Window(axis, rows, length, start, count)

    @staticmethod
    def of_problem(problem: Problem[ConvolveParameters]) -> Window:
        """Returns the window of a problem."""
        x, v = map(required, problem.operands)
        axis = problem.parameters.axis
        return Window.of(x.shape[axis], v.shape[0], problem.parameters.mode, axis)


MAX_QUICK = 1 << 10
MAX_QUICK_BYTES = 1 << 32
"""Weights, and bytes of the result times weights, up to which strategies are timed."""


def windowed(needed: jax.Array, v: jax.Array, start: int | jax.Array, window: Window, dtype: np.dtype) -> jax.Array:
    """Returns rows of the full convolution.

    Args:
        needed: [count + L - 1, …] the rows of x from ``start - (L - 1)`` on; zeros where x has none.
        v: [L] the weights.
        start: the first row of the full convolution.
        window: the rows that the call returns.
        dtype: the element type of the result.

    Returns:
        [count, …].
    """
    wide, weights = element_types.widen(needed, dtype), element_types.widen(v, dtype)
    count = needed.shape[window.axis] - window.length + 1
    shape = (*needed.shape[: window.axis], count, *needed.shape[window.axis + 1 :])
    index_dtype = index_type(2 * (window.rows + window.length + count))
    row = lax.broadcasted_iota(index_dtype, shape, window.axis) + jnp.asarray(start, index_dtype)

    def add(k: int | jax.Array, sums: jax.Array) -> jax.Array:
        factor = rows(wide, window.length - 1 - k, count, window.axis)
        weight = rows(weights, k, 1, 0).reshape(())
        if dtype == np.bool_:
            return sums | (factor & weight)
        product = factor * weight
        if jnp.issubdtype(product.dtype, jnp.inexact):  # a zero outside x times an infinity would be a NaN
            product = jnp.where((row >= k) & (row < window.rows + k), product, jnp.zeros((), product.dtype))
        return sums + product

    sums = add(0, jnp.zeros(shape, wide.dtype))
    if window.length <= MAX_UNROLLED:
        for k in range(1, window.length):
            sums = add(k, sums)
    else:
        sums = lax.fori_loop(index_dtype.type(1), index_dtype.type(window.length), add, sums)
    return element_types.narrow(sums, dtype)


def _unsharded(x: jax.Array, v: jax.Array, window: Window, dtype: np.dtype) -> jax.Array:
    """Returns all rows of the result; ``x`` holds all of its rows along the axis."""
    before, after = window.length - 1 - window.start, window.start + window.count - window.rows
    return windowed(pad_axis(x, window.axis, before, after), v, window.start, window, dtype)


def _gspmd(problem: Problem[ConvolveParameters], mesh: jax.sharding.Mesh) -> Program:
    del mesh
    window, (result,) = Window.of_problem(problem), problem.results

    def program(x: jax.Array, v: jax.Array) -> tuple[jax.Array]:
        x = rows(x, 0, window.rows, window.axis)
        convolution = _unsharded(x, fit(v, (window.length,)), window, result.dtype)
        return (fit(convolution, problem.padded_result()),)

    return program


@dataclass(frozen=True)
class Halo:
    """The rows that the blocks of a convolution need from other blocks.

    Attributes:
        along: the axis of the convolution.
        exchange: returns the block of a device with the rows around it.
        starts: [D] the first of these rows that each device uses.
        block: rows of a block of the result.
    """

    along: ShardedAxis
    exchange: Exchange
    starts: tuple[int, ...]
    block: int

    @staticmethod
    def of(problem: Problem[ConvolveParameters], window: Window) -> Halo:
        """Returns the halo of a problem whose result is sharded as x."""
        x, spec, mesh = required(problem.operands[0]), required(problem.in_specs[0]), problem.mesh
        along = ShardedAxis.of(x, spec, window.axis, mesh)
        block = block_shape(problem.results[0].shape, spec, mesh)[window.axis]
        # The first row that each device needs, relative to its block of x.
        first = [d * (block - along.block) + window.start - (window.length - 1) for d in range(along.devices)]
        left = max(0, -min(first))
        right = max(0, max(first) + block + window.length - 1 - along.block)
        starts = [d * along.block for d in range(along.devices)]
        exchange = Exchange.of(along, [(s - left, s + along.block + right) for s in starts], "zero")
        return Halo(along, exchange, tuple(row + left for row in first), block)


def _halo(problem: Problem[ConvolveParameters], mesh: jax.sharding.Mesh) -> Program:
    spec, window = required(problem.in_specs[0]), Window.of_problem(problem)
    mapped = jax.shard_map(
        partial(_halo_block, window=window, halo=Halo.of(problem, window), dtype=problem.results[0].dtype),
        mesh=mesh,
        in_specs=(partition_spec(spec), PartitionSpec(None)),
        out_specs=partition_spec(spec),
    )
    return lambda x, v: (mapped(x, fit(v, (window.length,))),)


def _halo_block(block: jax.Array, v: jax.Array, window: Window, halo: Halo, dtype: np.dtype) -> jax.Array:
    """Computes a block of the result from a block of x and the rows around it."""
    if halo.along.devices == 1:
        return _unsharded(rows(block, 0, window.rows, window.axis), v, window, dtype)
    wider = halo.exchange(block)
    needed = rows(wider, halo.along.pick(halo.starts), halo.block + window.length - 1, window.axis)
    first = halo.along.pick([device * halo.block + window.start for device in range(halo.along.devices)])
    return windowed(needed, v, first, window, dtype)


def _halo_refusal(problem: Problem[ConvolveParameters]) -> str | None:
    spec, out_spec = required(problem.in_specs[0]), problem.out_specs[0]
    if out_spec is None or out_spec == spec:
        return None
    return (
        f"x is sharded as {format_spec(spec)} and the result as {format_spec(out_spec)}, "
        "and it serves a result sharded as x"
    )


class Convolve(StencilKernel[ConvolveParameters]):
    """The convolution with a window along an axis, as `numpy.convolve` of every row.

    ``r[i] = sum over k of v[k] * x[i - k]`` along ``axis``, terms outside ``x`` left out:
    ``np.apply_along_axis(np.convolve, axis, x, v, mode)``, with the element type of ``np.convolve``. Of N rows and L
    elements of v, ``full`` returns all N + L - 1 sums, ``same`` the middle max(N, L), ``valid`` the
    max(N, L) - min(N, L) + 1 that no end cuts short. Integers wrap and are NumPy's exactly, bool is an or of ands.
    Floats are added in order of k: every sum is within ``L * eps * sum(|v[k] * x[i - k]|)`` of the true one; types
    narrower than float32 are computed in float32 and rounded once. The work is N·L.

    Sharding: any axis may be sharded, over any mesh axes; v is replicated. Along ``axis`` ``halo`` sends the
    L - 1 rows that a block needs of others, and up to as many rows as there are blocks where those of x and of the
    result are of two sizes: a collective-permute for each distance. ``gspmd`` leaves the partitioning to the compiler.

    Source: numpy/_core/numeric.py; the halo exchange of structured-grid solvers.
    """

    function = FUNCTIONS["convolve"]
    version = 1
    reproducibility = Reproducibility.INTEGERS
    strategies = (
        Strategy(
            "halo",
            "Every device gets the rows that it needs of its neighbours, however far, and adds up its own block. "
            "Serves a result sharded as x.",
            _halo_refusal,
            _halo,
        ),
        Strategy(
            "gspmd",
            "The convolution of the unsharded array, partitioned by the compiler. Serves every layout.",
            lambda _: None,
            _gspmd,
        ),
    )

    def product_count(self, operands: OperandTypes, signature: Signature[ConvolveParameters]) -> int:
        """Returns the multiplications."""
        x, v = map(required, operands)
        return math.prod(x.shape) * math.prod(v.shape)

    def is_quick(self, problem: Problem[ConvolveParameters]) -> bool:
        """Returns True if v is short: every row of the result is a sum of as many products."""
        (weights,) = required(problem.operands[1]).shape
        return weights <= MAX_QUICK and problem.results[0].nbytes * weights <= MAX_QUICK_BYTES

    def choose(self, problem: Problem[ConvolveParameters]) -> tuple[str, str]:
        """Returns ``halo`` where the result is sharded as x, else ``gspmd``."""
        if why := _halo_refusal(problem):
            return "gspmd", f"halo cannot: {why}"
        axis = problem.parameters.axis
        if not (names := required(problem.in_specs[0])[axis]):
            return "halo", f"axis {axis} is not sharded, so nothing moves"
        return "halo", f"axis {axis} is sharded over {', '.join(names)}; only the rows next to its blocks move"
