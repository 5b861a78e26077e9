"""The n-th discrete difference along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

from shardcall_core.functions.stencils import DiffParameters, edge_rows
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import (
    MeshAxes,
    OperandTypes,
    Specs,
    format_spec,
    padded_shape,
    replicated,
    required,
)
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit, partition_spec, rows
from shardcall_server.kernels.core.kernel import Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.stencils.halo import (
    MAX_UNROLLED,
    Geometry,
    differences,
    halo_block,
    unsharded_block,
)
from shardcall_server.kernels.stencils.stencil import StencilKernel

MAX_DISTANCE = 4
"""The maximum distance in blocks over which ``halo`` fetches rows; beyond it, a device would hold most of x."""


def _edges(problem: Problem[DiffParameters], arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Returns prepend and append as arrays of the result's type and x's padded shape across the axis."""
    axis, dtype = problem.parameters.axis, problem.results[0].dtype
    x, *edges = problem.operands
    shape = padded_shape(required(x).shape, required(problem.in_specs[0]), problem.mesh)
    present = iter(arrays[1:])
    result = []
    for edge in edges:
        across = (*shape[:axis], edge_rows(edge, axis), *shape[axis + 1 :])
        if edge is None:
            result.append(jnp.zeros(across, dtype))
            continue
        array = element_types.convert(next(present), dtype)
        result.append(fit(array, across) if edge.ndim else jnp.broadcast_to(array, across))
    return result


def _is_trivial(problem: Problem[DiffParameters]) -> bool:
    return problem.parameters.n == 0 or 0 in problem.results[0].shape


def _trivial(problem: Problem[DiffParameters], mesh: jax.sharding.Mesh) -> Program:
    (result,), shape = problem.results, problem.padded_result()
    if problem.parameters.n == 0:
        specs = problem.in_specs[0], problem.out_specs[0]
        return lambda x, *_: (moved(lambda bits: fit(bits, shape), x, mesh=mesh, specs=specs),)
    return lambda *_: (jnp.zeros(shape, result.dtype),)


def _gspmd(problem: Problem[DiffParameters], mesh: jax.sharding.Mesh) -> Program:
    if _is_trivial(problem):
        return _trivial(problem, mesh)
    (result,), g = problem.results, Geometry.of(problem)

    def program(*operands: jax.Array) -> tuple[jax.Array]:
        (prepend, append), x = _edges(problem, operands), operands[0]
        if g.devices == 1:
            difference = unsharded_block(x, prepend, append, g, result.dtype)
        else:
            parts = [prepend, rows(x, 0, g.along.rows, g.axis), append]
            difference = differences(parts, 0, result.shape[g.axis], g, result.dtype)
        return (fit(difference, problem.padded_result()),)

    return program


def _halo(problem: Problem[DiffParameters], mesh: jax.sharding.Mesh) -> Program:
    if _is_trivial(problem):
        return _trivial(problem, mesh)
    g, spec = Geometry.of(problem), required(problem.in_specs[0])
    across = tuple(() if i == g.axis else names for i, names in enumerate(spec))
    body = jax.shard_map(
        partial(halo_block, g=g, dtype=problem.results[0].dtype),
        mesh=mesh,
        in_specs=(partition_spec(spec), partition_spec(across), partition_spec(across)),
        out_specs=partition_spec(spec),
    )
    return lambda *operands: (body(operands[0], *_edges(problem, operands)),)


def _halo_refusal(problem: Problem[DiffParameters]) -> str | None:
    spec, out_spec = required(problem.in_specs[0]), problem.out_specs[0]
    if out_spec is not None and out_spec != spec:
        return (
            f"x is sharded as {format_spec(spec)} and the result as {format_spec(out_spec)}, "
            "and it serves a result sharded as x"
        )
    if _is_trivial(problem):
        return None
    g = Geometry.of(problem)
    if g.devices > 1 and g.distance > MAX_DISTANCE:
        return (
            f"along axis {g.axis} a block has {g.block} rows and needs {max(g.left, g.right)} of those on one side, "
            f"and it serves {MAX_DISTANCE} neighbours on each"
        )
    return None


class Diff(StencilKernel[DiffParameters]):
    """The n-th discrete difference along an axis, as `numpy.diff`.

    With e the rows of ``prepend``, ``x`` and ``append`` one after the other, order 1 is
    ``r[i] = e[i + 1] - e[i]`` (``e[i + 1] != e[i]`` for bool), order n is that n times:
    ``np.diff(x, n, axis, prepend=…, append=…)``, with its element type, except that XLA:CPU treats subnormals as zero
    where it subtracts; for n = 0 it is ``x``.

    Sharding: any axis may be sharded, over any mesh axes. Along an axis that is not sharded nothing moves. Along a
    sharded one, ``halo`` sends the rows that neighbours need: one collective-permute in each direction where blocks
    have enough rows, else one for each block up to four away. One direction takes as many rows as are prepended, the
    other the rest of n, or up to the number of blocks more where the blocks of x and of the result differ in size.
    ``gspmd`` leaves the partitioning to the compiler, which mostly makes two all-to-alls of x.

    Source: numpy/lib/_function_base_impl.py; the halo exchange of structured-grid solvers, as in
    google-research/dinosaur, dinosaur/jax_numpy_utils.py.
    """

    function = FUNCTIONS["diff"]
    version = 3
    reproducibility = Reproducibility.ALWAYS
    strategies = (
        Strategy(
            "gspmd",
            "The difference of the unsharded array, partitioned by the compiler. Serves every layout; along a sharded "
            "axis it moves the array twice.",
            lambda _: None,
            _gspmd,
        ),
        Strategy(
            "halo",
            "Every device sends its edge rows to its neighbours and takes the differences of its own block in one "
            "pass. Serves a result sharded as x, and rows up to four blocks away.",
            _halo_refusal,
            _halo,
        ),
    )

    def default_in_specs(
        self, operands: OperandTypes, parameters: DiffParameters, in_specs: Specs, mesh: MeshAxes, strategy: str
    ) -> Specs:
        """Fills in unset specs: x by rows over all mesh axes, the edges as x but not sharded along the axis."""
        x, *edges = super().default_in_specs(operands[:1], parameters, in_specs[:1], mesh, strategy) + tuple(
            in_specs[1:]
        )
        axis = parameters.axis
        across = tuple(() if i == axis else names for i, names in enumerate(required(x)))
        for i, operand in enumerate(operands[1:]):
            if operand is not None and edges[i] is None:
                edges[i] = across if operand.ndim == len(across) else replicated(operand.ndim)
        return (x, *edges)

    def is_quick(self, problem: Problem[DiffParameters]) -> bool:
        """Returns True for orders whose steps are unrolled; above, each step takes a pass over the array."""
        return problem.parameters.n <= MAX_UNROLLED

    def choose(self, problem: Problem[DiffParameters]) -> tuple[str, str]:
        """Returns ``halo`` where the axis is sharded and it serves, else ``gspmd``."""
        if _is_trivial(problem):
            return "gspmd", "there is no difference to take"
        g = Geometry.of(problem)
        if g.devices == 1:
            return "gspmd", f"axis {g.axis} is not sharded, so no row moves"
        if why := _halo_refusal(problem):
            return "gspmd", f"halo cannot: {why}"
        return "halo", f"axis {g.axis} is sharded over {', '.join(g.along.axis_names)}; only its edge rows move"
