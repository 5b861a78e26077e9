"""The sum of second differences along several axes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from shardcall_core.functions.stencils import LaplacianParameters
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import required
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.kernel import Problem
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics import arithmetic
from shardcall_server.kernels.stencils import stencil
from shardcall_server.kernels.stencils.exchange import ShardedAxis
from shardcall_server.kernels.stencils.routes import Boundary
from shardcall_server.kernels.stencils.stencil import StencilKernel

BOUNDARIES: tuple[Boundary, ...] = ("periodic", "zero", "edge")


def _body(
    block: jax.Array,
    *spacing: jax.Array,
    alongs: Sequence[ShardedAxis],
    boundary: Boundary,
    dtype: np.dtype,
) -> tuple[jax.Array]:
    steps = spacing * len(alongs) if len(spacing) == 1 else spacing
    work = element_types.working_type(dtype)
    squares = [step.astype(work.type(0).real.dtype) ** 2 for step in steps]

    total: jax.Array | None = None
    for i, along in enumerate(alongs):
        here = block.astype(work)
        before, after = (_neighbors(block, along, offset, boundary).astype(work) for offset in (-1, 1))
        term = before - (here + here) + after
        term = arithmetic.divide(term, squares[i]) if squares else term
        total = term if total is None else total + term
    return (element_types.narrow(required(total), dtype),)


def _neighbors(block: jax.Array, along: ShardedAxis, offset: int, boundary: Boundary) -> jax.Array:
    """Returns the element before or after each one of a block."""
    width = (1, 0) if offset < 0 else (0, 1)
    return stencil.stencil(block, along, width, boundary, lambda x, start, stop: x.at(start + offset, stop + offset))


def _bound(problem: Problem[LaplacianParameters]) -> stencil.Body:
    return partial(_body, boundary=problem.parameters.boundary, dtype=problem.results[0].dtype)


class Laplacian(StencilKernel[LaplacianParameters]):
    """The sum over axes of ``x[i - 1] - 2 x[i] + x[i + 1]``, as `scipy.ndimage.laplace` takes it.

    Outside x are its own elements (``periodic``, `numpy.pad`'s wrap), zeros (``zero``) or its outermost rows
    (``edge``). With ``spacing`` each axis's term is divided by the square of its step. The result is of x's element
    type; integers wrap, and become float64 where there is a spacing. Narrow floats are summed up in float32 and rounded
    once.

    Sharding: any axes may be sharded, several at once, over any mesh axes. ``halo`` sends one row in each direction
    along each sharded axis of ``axes``; ``gspmd`` leaves the partitioning to the compiler.

    Source: the halo exchange of structured-grid solvers.
    """

    function = FUNCTIONS["laplacian"]
    version = 4
    reproducibility = Reproducibility.ALWAYS
    strategies = stencil.strategies(lambda problem: problem.parameters.axes, _bound)
