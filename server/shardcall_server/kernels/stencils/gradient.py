"""The derivative along one or more axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions.stencils import GradientParameters
from shardcall_core.functions.table import FUNCTIONS
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.blocks import pad_axis, rows
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics import arithmetic
from shardcall_server.kernels.stencils import stencil
from shardcall_server.kernels.stencils.exchange import ShardedAxis, rows_after, rows_before
from shardcall_server.kernels.stencils.spacings import Weights, even_edges
from shardcall_server.kernels.stencils.stencil import StencilKernel


@dataclass(frozen=True)
class _Slopes:
    """The computation of the rows of a derivative, in the working type.

    Attributes:
        along: the axis of the derivative.
        edge_order: e, 1 or 2.
        dtype: the element type of the result.
        step: between rows; 1 for coordinates.
        weights: of the rows, if the spacing is coordinates.
    """

    along: ShardedAxis
    edge_order: int
    dtype: np.dtype
    step: jax.Array
    weights: Weights | None

    @staticmethod
    def of(along: ShardedAxis, spacing: jax.Array | None, edge_order: int, dtype: np.dtype) -> _Slopes:
        """Returns the computation for a scalar step, for coordinates [R], or for steps of 1."""
        one = jnp.ones((), element_types.working_type(dtype)).real
        if spacing is None or spacing.ndim:
            weights = None if spacing is None else Weights.of(spacing, edge_order)
            return _Slopes(along, edge_order, dtype, one, weights)
        return _Slopes(along, edge_order, dtype, spacing.astype(one.dtype), None)

    def inner(self, earlier: jax.Array, here: jax.Array, later: jax.Array, row: int | jax.Array) -> jax.Array:
        """Returns rows that have rows on both sides; ``row`` is the index in the block of the first of ``here``."""
        earlier, here, later = (self._wide(array) for array in (earlier, here, later))
        if self.weights is None:
            return arithmetic.divide(later - earlier, 2 * self.step)
        along, count = self.along, here.shape[self.along.axis]
        padded = jnp.pad(self.weights.inner, ((0, 0), (0, along.devices * along.block - along.rows)))
        factors = rows(padded, along.index() * along.block + row, count, 1).astype(self.step.dtype)
        shape = [count if i == along.axis else 1 for i in range(here.ndim)]
        a, b, c = (rows(factors, i, 1, 0).reshape(shape) for i in range(3))
        # For even steps b is 0, and 0 times -1 is -0, which changes no sum.
        return a * earlier + b * jnp.where(self.weights.even, -jnp.ones_like(here), here) + c * later

    def first(self, edge: jax.Array) -> jax.Array:
        """Returns the array's first row, of its first e + 1."""
        return self._edge_row(edge, self.weights.first if self.weights else even_edges(self.step, self.edge_order)[0])

    def last(self, edge: jax.Array) -> jax.Array:
        """Returns the array's last row, of its last e + 1."""
        return self._edge_row(edge, self.weights.last if self.weights else even_edges(self.step, self.edge_order)[1])

    def finished(self, array: jax.Array) -> jax.Array:
        """Returns the bits of the result's type."""
        return element_types.as_bits(element_types.narrow(array, self.dtype))

    def _edge_row(self, edge: jax.Array, factors: jax.Array) -> jax.Array:
        factors, wide = factors.astype(self.step.dtype), self._wide(edge)
        parts = [rows(wide, i, 1, self.along.axis) for i in range(self.edge_order + 1)]
        if self.edge_order == 1:
            return arithmetic.divide(parts[1] - parts[0], factors[0])
        a, b, c = (part * factors[i] for i, part in enumerate(parts))
        return a + b + c

    def _wide(self, array: jax.Array) -> jax.Array:
        return array.astype(element_types.working_type(self.dtype))


def _bodies(
    block: jax.Array,
    *spacing: jax.Array,
    alongs: Sequence[ShardedAxis],
    edge_order: int,
    dtype: np.dtype,
) -> tuple[jax.Array, ...]:
    spacings: list[jax.Array | None] = list(spacing or [None])
    steps = spacings * len(alongs) if len(spacings) == 1 else spacings
    slopes = [_Slopes.of(along, step, edge_order, dtype) for step, along in zip(steps, alongs, strict=True)]
    return tuple(_body(block, of_axis) for of_axis in slopes)


def _body(block: jax.Array, slopes: _Slopes) -> jax.Array:
    # One device's block of the derivative along one axis: the rows inside, and the first and last updated in place.
    along, axis, size = slopes.along, slopes.along.axis, slopes.along.block
    held = [along.held(device) or size for device in range(along.devices)]
    # If a block may hold fewer rows than an edge needs, those of the next block are used.
    width = 1 if min(held) > slopes.edge_order else slopes.edge_order
    before, after = rows_before(along, width, "none"), rows_after(along, width, "none")
    if size > 2:
        earlier, here, later = (rows(block, start, size - 2, axis) for start in (0, 1, 2))
        inside = slopes.inner(earlier, here, later, 1)
        result = pad_axis(slopes.finished(inside), axis, 1, 1)
    else:
        result = slopes.finished(jnp.zeros(block.shape, element_types.working_type(slopes.dtype)))
    left, right = before(block), after(block)
    last_index = along.pick([count - 1 for count in held])
    last = _last_row(block, left, right, last_index, slopes)
    result = lax.dynamic_update_slice_in_dim(result, slopes.finished(last), last_index, axis)
    first = _first_row(block, left, right, slopes)
    if min(held) == 1:  # a block's only row may be the array's last
        is_last = (along.index() == (along.rows - 1) // size) & (jnp.asarray(last_index) == 0)
        first = jnp.where(is_last, last, first)
    result = lax.dynamic_update_slice_in_dim(result, slopes.finished(first), 0, axis)
    return element_types.from_bits(result, slopes.dtype)


def _first_row(block: jax.Array, left: jax.Array, right: jax.Array, slopes: _Slopes) -> jax.Array:
    # The derivative in a block's first row, which may be the array's.
    axis, width = slopes.along.axis, left.shape[slopes.along.axis]
    edge = jnp.concatenate([rows(block, 0, min(slopes.along.block, slopes.edge_order + 1), axis), right], axis)
    inner = slopes.inner(rows(left, width - 1, 1, axis), rows(edge, 0, 1, axis), rows(edge, 1, 1, axis), 0)
    return jnp.where(slopes.along.index() == 0, slopes.first(edge), inner)


def _last_row(
    block: jax.Array, left: jax.Array, right: jax.Array, last_index: int | jax.Array, slopes: _Slopes
) -> jax.Array:
    # The derivative in a block's last valid row, which may be the array's.
    along, axis, edge_order = slopes.along, slopes.along.axis, slopes.edge_order
    start = last_index + left.shape[axis] - edge_order
    edge = rows(jnp.concatenate([left, block], axis), start, edge_order + 1, axis)
    earlier, here = (rows(edge, i, 1, axis) for i in (edge_order - 1, edge_order))
    inner = slopes.inner(earlier, here, rows(right, 0, 1, axis), last_index)
    return jnp.where(along.index() == (along.rows - 1) // along.block, slopes.last(edge), inner)


def _bound(problem: Problem[GradientParameters]) -> stencil.Body:
    return partial(_bodies, edge_order=problem.parameters.edge_order, dtype=problem.results[0].dtype)


class Gradient(StencilKernel[GradientParameters]):
    """The derivative along one or more axes, as `numpy.gradient`: one result for each axis.

    With step h it is ``(x[i + 1] - x[i - 1]) / 2h`` inside, and at the ends the one-sided difference of ``edge_order``;
    with coordinates the second-order one of uneven steps. Floating-point and complex types stay, others become
    float64. The narrow types that NumPy does not have stay too, and are computed in float32.

    Sharding: any axis may be sharded, over any mesh axes. Along one that is, ``halo`` sends one row in each direction,
    two where ``edge_order`` is 2 and the last block holds less than three; ``gspmd`` leaves the partitioning to the
    compiler.

    Source: numpy/lib/_function_base_impl.py.
    """

    function = FUNCTIONS["gradient"]
    version = 4
    reproducibility = Reproducibility.PER_CALL
    strategies = stencil.strategies(lambda problem: problem.parameters.axis, _bound)

    def is_reproducible(self, problem: Problem[GradientParameters]) -> bool:
        """Returns True if no product is rounded: the compiler fuses some with sums, but not at the edges of blocks."""
        has_coordinates = any(spacing is not None and spacing.ndim for spacing in problem.operands[1:])
        return not has_coordinates and problem.parameters.edge_order == 1
