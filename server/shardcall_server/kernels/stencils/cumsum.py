"""The running sum along an axis."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from shardcall_core.functions.stencils import CumSumParameters
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import Specs, block_shape, format_spec, required
from shardcall_server.kernels.core import element_types
from shardcall_server.kernels.core.blocks import fit, partition_spec
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility
from shardcall_server.kernels.numerics.ordering import is_nonzero
from shardcall_server.kernels.numerics.scan import running_sum, total, tree_sum

MAX_UNROLLED = 64
"""The number of devices up to which the sum of their totals is unrolled."""


def _widen(x: jax.Array, dtype: np.dtype) -> jax.Array:
    """Converts an array to the result's type, in the type of the sums; bools become counts."""
    if dtype == np.bool_:
        return is_nonzero(element_types.widen(x, x.dtype)).astype(np.int64)
    return element_types.widen(x, dtype)


def _narrow(sums: jax.Array, dtype: np.dtype) -> jax.Array:
    return sums != 0 if dtype == np.bool_ else element_types.narrow(sums, dtype)


def _gspmd(problem: Problem[CumSumParameters], mesh: jax.sharding.Mesh) -> Program:
    del mesh
    (result,), axis = problem.results, problem.parameters.axis
    x_type = required(problem.operands[0])

    def program(x: jax.Array) -> tuple[jax.Array]:
        if axis is None or not x_type.ndim:
            x = fit(x, x_type.shape).reshape(-1)
        sums = _narrow(tree_sum(_widen(x, result.dtype), axis or 0), result.dtype)
        return (fit(sums, problem.padded_result()),)

    return program


def _block_scan(problem: Problem[CumSumParameters], mesh: jax.sharding.Mesh) -> Program:
    spec, axis = required(problem.in_specs[0]), problem.parameters.axis
    flat = axis is None
    body = partial(
        _scan_block,
        axis=axis,
        axis_names=spec[axis or 0],
        dtype=problem.results[0].dtype,
        looped=mesh.devices.flat[0].platform == "cpu",
    )
    mapped = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=partition_spec(spec),
        out_specs=partition_spec(spec[:1] if flat else spec),
    )
    return lambda x: (mapped(x),)


def _scan_block(
    block: jax.Array, axis: int | None, axis_names: tuple[str, ...], dtype: np.dtype, *, looped: bool
) -> jax.Array:
    """Returns one device's block of the result.

    Args:
        block: [B, …], the device's block of x.
        axis: the axis of the sum; None to flatten.
        axis_names: the mesh axes that shard it.
        dtype: the element type of the result.
        looped: see `running_sum`.

    Returns:
        [B, …], flat if ``axis`` is None.
    """
    if axis is None:
        block, axis = block.reshape(-1), 0
    wide = _widen(block, dtype)
    before = jnp.zeros((*wide.shape[:axis], 1, *wide.shape[axis + 1 :]), wide.dtype)
    if axis_names:
        # The totals are computed in a separate pass, which only reads. Adding the sum of the earlier blocks to finished
        # sums would be a pass that reads and writes.
        totals = lax.all_gather(total(wide, axis), axis_names)
        before = jnp.expand_dims(_sum_before(totals, lax.axis_index(axis_names)), axis)
    return _narrow(running_sum(wide, axis, before, looped=looped), dtype)


def _sum_before(totals: jax.Array, device: jax.Array) -> jax.Array:
    """Returns the sum of the totals, ``[D, …]``, of the devices before one.

    It is unrolled as far as compile time allows: XLA:CPU (jax 0.10.2) fuses a reduction with the first chunk of the
    running sum into one call of its YNN library, in which the chunk takes ten times as long.
    """
    count, zero = totals.shape[0], jnp.zeros((), totals.dtype)
    if count > MAX_UNROLLED:
        index = lax.broadcasted_iota(np.int32, totals.shape, 0)
        return jnp.where(index < device, totals, zero).sum(0, dtype=totals.dtype)
    before = jnp.where(device > 0, totals[0], zero)  # a select: the total of padding may be NaN
    for i in range(1, count - 1):
        before = before + jnp.where(device > i, totals[i], zero)
    return before


def _block_scan_refusal(problem: Problem[CumSumParameters]) -> str | None:
    x, spec, out_spec = required(problem.operands[0]), required(problem.in_specs[0]), problem.out_specs[0]
    if not x.ndim:
        return "x is a scalar, and it serves arrays of one axis or more"
    if problem.parameters.axis is not None:
        if out_spec is None or out_spec == spec:
            return None
        return (
            f"x is sharded as {format_spec(spec)} and the result as {format_spec(out_spec)}, "
            "and it serves a result sharded as x"
        )
    if any(spec[1:]):
        return f"x is flattened and sharded as {format_spec(spec)}, and only its first axis may be sharded"
    if out_spec is None:
        return None
    if out_spec != spec[:1]:
        return (
            f"x is flattened and sharded as {format_spec(spec)} and the result as {format_spec(out_spec)}, "
            f"and it serves a result sharded as {format_spec(spec[:1])}"
        )
    rows, block = x.shape[0], block_shape(x.shape, spec, problem.mesh)[0]
    if block * problem.mesh.size(spec[0]) != rows:
        return (
            f"x is flattened, its {rows} rows do not divide into {problem.mesh.size(spec[0])} blocks, "
            "and it then serves a result whose spec is left unset"
        )
    return None


class CumSum(FunctionKernel[CumSumParameters]):
    """The running sum along an axis, as `numpy.cumsum`.

    ``r[i] = x[0] + … + x[i]`` along ``axis``, or along the flattened ``x`` where ``axis`` is None:
    ``np.cumsum(x, axis, dtype)``, with its element type. x is converted to that type first; a float beyond an
    integer type's range becomes any integer, as in NumPy. Integers wrap and are NumPy's exactly, bool is a running
    or. Floats are added in another order than NumPy's, which depends on the mesh: while no sum overflows, ``r[i]`` is
    within ``(i + 1) * eps * (|x[0]| + … + |x[i]|)`` of the true sum. Types narrower than float32 are added up in
    float32 and rounded once, so that they do not stall as NumPy's do: ``eps`` is float32's, and the rounding of the
    result comes on top.

    Sharding: any axis may be sharded, over any mesh axes. Along one that is not sharded nothing moves. Along one that
    is, ``block_scan`` gathers one row from each of the D devices, their blocks' totals: one all-gather of D rows.
    ``gspmd`` leaves the partitioning to the compiler.

    Source: Blelloch, "Prefix sums and their applications", 1990, section 1.3; google-research/dinosaur,
    dinosaur/jax_numpy_utils.py.
    """

    function = FUNCTIONS["cumsum"]
    version = 5
    reproducibility = Reproducibility.INTEGERS
    strategies = (
        Strategy(
            "block_scan",
            "Every device adds up its block, gets the totals of all, and sums on from those before it. Serves a "
            "result sharded as x; flattened, an x sharded along its first axis only.",
            _block_scan_refusal,
            _block_scan,
        ),
        Strategy(
            "gspmd",
            "The running sum of the unsharded array, partitioned by the compiler, which gathers x along a sharded "
            "axis. Serves every layout.",
            lambda _: None,
            _gspmd,
        ),
    )

    def default_out_specs(self, problem: Problem[CumSumParameters], strategy: str) -> Specs:
        """Shards the result as x; the strategy decides the spec of a flattened one."""
        (spec,), x_spec = problem.out_specs, required(problem.in_specs[0])
        if spec is None and problem.parameters.axis is not None:
            return (x_spec or ((),),)
        return (spec,)

    def choose(self, problem: Problem[CumSumParameters]) -> tuple[str, str]:
        """Returns ``block_scan`` where it serves and the array is not small, else ``gspmd``."""
        if why := _block_scan_refusal(problem):
            return "gspmd", f"block_scan cannot: {why}"
        if problem.is_small:
            return "gspmd", "x is small, and the program is short"
        names = required(problem.in_specs[0])[problem.parameters.axis or 0]
        if not names:
            return "block_scan", "the axis is not sharded, so nothing moves"
        return "block_scan", f"the axis is sharded over {', '.join(names)}; only the totals of its blocks move"
