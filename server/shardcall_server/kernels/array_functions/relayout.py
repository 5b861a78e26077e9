"""Kernels that move elements and compute nothing: reshard, copy, transpose.

Every bit is kept, except the payload of a bfloat16 NaN where the compiler pads blocks on CPU; no form of the program
that was tried preserves it.
"""

from __future__ import annotations

import jax
from jax import lax

from shardcall_core.functions.relayouts import TransposeParameters
from shardcall_core.functions.table import FUNCTIONS
from shardcall_core.layouts.layout import Specs, format_spec, required
from shardcall_server.kernels.core.all_gather_plan import AllGatherPlan
from shardcall_server.kernels.core.bits import moved
from shardcall_server.kernels.core.blocks import fit
from shardcall_server.kernels.core.blockwise import AlignedAxis, Blockwise
from shardcall_server.kernels.core.kernel import FunctionKernel, Problem, Program, Strategy
from shardcall_server.kernels.core.reproducibility import Reproducibility


def _permutation(problem: Problem[TransposeParameters | None]) -> tuple[int, ...]:
    """Returns the axis of x that becomes each axis of the result."""
    return problem.parameters.axes if problem.parameters else tuple(range(problem.results[0].ndim))


def _relaid(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    specs = required(problem.in_specs[0]), required(problem.out_specs[0])
    permutation, shape = _permutation(problem), problem.padded_result()
    stays = tuple(specs[0][i] for i in permutation) == specs[1]
    if stays and problem.results[0].dtype.kind == "c":  # moving its parts separately would take twice the time
        return lambda x: (fit(lax.transpose(x, permutation), shape),)
    return lambda x: (moved(lambda bits: fit(lax.transpose(bits, permutation), shape), x, mesh=mesh, specs=specs),)


_GSPMD = Strategy(
    "gspmd",
    "The compiler moves what each device needs: nothing where the blocks stay, else by an all-gather, an "
    "all-to-all or a collective-permute.",
    lambda _: None,
    _relaid,
)


def _all_gather_plan(problem: Problem) -> AllGatherPlan:
    """Returns the moves from blocks of x, their axes in the result's order, to those of the result."""
    spec, out_spec = required(problem.in_specs[0]), required(problem.out_specs[0])
    return AllGatherPlan.of(
        problem.results[0].shape, tuple(spec[i] for i in _permutation(problem)), out_spec, problem.mesh
    )


def _all_gather_refusal(problem: Problem) -> str | None:
    plan = _all_gather_plan(problem)
    if not plan.gathers:
        return "every device has all elements of its block of the result, and it gathers elements that a device lacks"
    if plan.cuts:
        return (
            f"x is sharded as {format_spec(required(problem.in_specs[0]))} and the result as "
            f"{format_spec(required(problem.out_specs[0]))}, so devices would gather more than their blocks, and it "
            "serves a result whose axes are sharded over those mesh axes that come first for the axes of x, or over "
            "none, where the edges of its blocks are edges of x's"
        )
    return None


def _gathered(problem: Problem, mesh: jax.sharding.Mesh) -> Program:
    gather, permutation = _all_gather_plan(problem).of_arrays(mesh), _permutation(problem)
    # Blocks are transposed before the gather, which is cheapest along the first axis.
    return lambda x: (gather(lax.transpose(x, permutation)),)


_ALL_GATHER = Strategy(
    "all_gather",
    "Every device gathers the blocks that it lacks and arranges all in one pass. Serves a result sharded "
    "over fewer mesh axes than x, where the edges of its blocks are edges of x's.",
    _all_gather_refusal,
    _gathered,
)


class _Relayout(FunctionKernel[TransposeParameters | None]):
    strategies = (_ALL_GATHER, _GSPMD)
    version = 2
    reproducibility = Reproducibility.ALWAYS

    def blockwise(self, problem: Problem[TransposeParameters | None]) -> Blockwise | None:
        """Returns a call as one of a region, if every block stays where it is."""
        spec, permutation = required(problem.in_specs[0]), _permutation(problem)
        if tuple(spec[i] for i in permutation) != problem.out_specs[0]:
            return None
        aligned = tuple(AlignedAxis(permutation.index(axis), 0) if names else None for axis, names in enumerate(spec))
        return Blockwise((spec,), (aligned,), lambda _shape, _offsets, blocks: lax.transpose(blocks[0], permutation))


class Copy(_Relayout):
    """The array, as `numpy.copy`, bit for bit, except the payload of a bfloat16 NaN where blocks are padded on CPU.

    ``r[i, …] = x[i, …]``

    Sharding: any; the result is sharded as x by default.
    """

    function = FUNCTIONS["copy"]

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards the result as x."""
        return (problem.out_specs[0] or problem.in_specs[0],)


class Reshard(Copy):
    """The array with another sharding, bit for bit as `copy` is, as `jax.lax.with_sharding_constraint`.

    ``r[i, …] = x[i, …]``

    Sharding: from any spec to any other; the result's, ``P()`` for replicated, names the target. From sharded to
    replicated every device gets (D - 1) / D of the array, from one sharded axis to another (D - 1) / D of its block.

    Source: the JAX documentation, Distributed arrays and automatic parallelization.
    """

    function = FUNCTIONS["reshard"]


class Transpose(_Relayout):
    """The array with its axes in another order, as `numpy.transpose`, bit for bit as `copy` is.

    ``r[i₀, i₁, …] = x[…]`` with ``r.shape[k] = x.shape[axes[k]]``.

    Sharding: any. Nothing moves where the result's spec is x's in the new order, the default.
    """

    function = FUNCTIONS["transpose"]

    def default_out_specs(self, problem: Problem, strategy: str) -> Specs:
        """Shards each axis of the result as it is in x."""
        spec, permutation = required(problem.in_specs[0]), _permutation(problem)
        return (problem.out_specs[0] or tuple(spec[i] for i in permutation),)
